"""Lines of the server's log, with whatever a client has sent."""

from __future__ import annotations

import logging

import pytest

from keylane_server.logs import LONGEST_MESSAGE, PlainFormatter


def line(message: str, *given: object, error: BaseException | None = None) -> str:
    trace = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("keylane.access", logging.INFO, "", 1, message, given, trace)
    return PlainFormatter("%(levelname)s %(message)s").format(record)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("/topics/é/keys/漢", "/topics/é/keys/漢"),
        ("\x1b]0;T\x07\x1b[2J", r"\x1b]0;T\x07\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("a\r\nFAKE LINE", r"a\r\nFAKE LINE"),
        ("a\x85b\u2028c\u2029d", r"a\x85b\u2028c\u2029d"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("\x7f\udcff\ud800", r"\x7f\udcff\ud800"),
    ],
)
def test_a_line_shows_what_is_not_printable(sent: str, shown: str):
    assert line("GET %s 200", sent) == f"INFO GET {shown} 200"


def test_a_line_ends():
    assert len(line("%s", "x" * 1_000_000)) < LONGEST_MESSAGE + 20
    assert line("%s", "x" * 1_000_000).endswith("x...")


def test_a_traceback_keeps_its_lines():
    found = line("it failed", error=ValueError("\x1b[31m\x9b"))
    assert found.split("\n") == ["INFO it failed", r"ValueError: \x1b[31m\x9b"]
