"""What commands print of keys, values and errors that anybody may have written."""

from __future__ import annotations

import json

import pytest

from keylane_client.cli import __main__ as program
from keylane_client.cli.printing import line_of, printable, printable_bytes, render_json

HOSTILE = "\x1b]0;T\x07\x1b[2J\x9b31m\r\nFAKE\x7f\x85\u2028\u202e\u2066\U000e0001"
DANGEROUS = frozenset(HOSTILE) - frozenset("]0;T[2J31mFAKE")


def test_a_cell_is_one_line_of_printable_text():
    found = line_of("é漢", HOSTILE, {HOSTILE: [HOSTILE]})
    assert not DANGEROUS & set(found)
    assert found.count("\t") == 2
    assert found.startswith(
        "é漢\t" + r"\x1b]0;T\x07\x1b[2J\x9b31m\r\nFAKE\x7f\x85\u2028\u202e\u2066\U000e0001"
    )


def test_json_is_the_same_with_escapes():
    value = {HOSTILE: [HOSTILE, "é"]}
    found = render_json(value)
    assert json.loads(found) == value
    assert found.isprintable()
    assert "é" in found


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a":\n\t1}', '{"a":\n\t1}'),
        ("é\x1b[31m".encode(), r"é\x1b[31m"),
        (b"\x9b31m\xff", r"\x9b31m\xff"),
        ("\x9b\u202e".encode(), r"\x9b\u202e"),
        (b"a\r\nb", "a\\r\nb"),
    ],
)
def test_bytes_for_a_terminal_keep_their_lines(data: bytes, shown: str):
    assert printable_bytes(data) == shown


def test_an_error_shows_what_is_not_printable(capsys: pytest.CaptureFixture[str]):
    error = RuntimeError(f"there is no {HOSTILE}")
    error.add_note(f"{HOSTILE[1:5]}\x1b\nline")
    program._show(error)
    shown = capsys.readouterr().err
    assert not (DANGEROUS - {"\n"}) & set(shown)
    assert printable("\x1b") in shown
