"""The spec in the browser: Python functions of this repository, translated to JavaScript."""
