"""``python -m hitproof``."""

from hitproof.vllm_integration.cli import main

if __name__ == "__main__":
    main()
