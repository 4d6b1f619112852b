"""The benchmark of the gate refuses what it cannot time."""

import pytest

from benchmarks import gate


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--repetitions", "0"], "at least one repetition"),
        (["--release", "/no/such/checkout"], "/no/such/checkout"),
    ],
)
def test_says_what_is_wrong(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        gate.main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
