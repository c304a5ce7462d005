"""What the job says reaches its output as far as that takes it, and never ends the job."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from keylane_spark.__main__ import _say, _write


@pytest.mark.parametrize(("encoding", "said"), [("utf-8", "é \\ud83d"), ("ascii", "\\xe9 \\ud83d")])
def test_a_line_that_the_output_can_not_encode_is_said_with_escapes(monkeypatch, encoding, said):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding))
    _write("é \ud83d")
    assert output.getvalue().decode(encoding) == f"{said}\n"


def test_an_output_that_is_full_or_closed_ends_nothing(monkeypatch):
    full = Path("/dev/full").open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 (closing it fails)
    monkeypatch.setattr(sys, "stdout", full)
    _say("one")
    with pytest.raises(OSError, match="No space left"):
        full.close()
    _say("two")
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "utf-8"))
    _say("three")
    assert output.getvalue().startswith(b"keylane: three ")
