from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keylane_local.front.server import describe_functions

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_functions_get_settings_and_aws_variables_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    passed = {
        "KEYLANE_QUEUE_URL": "http://127.0.0.1:4566/000000000000/log.fifo",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:4566",
        "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:4567",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "eu-west-1",
    }
    for name in [*os.environ]:
        monkeypatch.delenv(name)
    for name, value in (passed | {"AWS_PROFILE": "mine", "OTHER": "x"}).items():
        monkeypatch.setenv(name, value)
    functions = describe_functions(tmp_path, tmp_path / "log", 2)
    for function in functions.values():
        assert dict(function.variables) == passed
        assert function.environment("127.0.0.1:1")["AWS_REGION"] == "eu-west-1"
