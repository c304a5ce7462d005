"""The torture's oracle of views over documents: what is invalid, failed or in a window, and newest values."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.torture.configurations import DATED, DOCUMENTS, LATE, PICKY
from tests.torture.oracle import KeyLog, Logged
from tests.torture.views import Expected, Windows, _differences, document, expected

AT_MS, KEY = 1_700_000_000_000, b"k"


class ALog:
    """A log of one key of the documents."""

    def __init__(self, *values: bytes | None) -> None:
        records = [Logged(0, offset, AT_MS, value, (), AT_MS) for offset, value in enumerate(values)]
        self.keys = {(DOCUMENTS, KEY): KeyLog(0, records={0: records})}

    def of(self, topic: str, key: bytes) -> KeyLog:
        return self.keys[topic, key]


def wanted(view: str, *values: bytes | None) -> Expected:
    return expected(view, ALog(*values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("serial", "of_dated", "of_picky"),
    [
        (0, "invalid", None),
        (1, "invalid", "records"),
        (2, "records", "failed"),
        (3, "invalid", "records"),
        (4, "invalid", "records"),
        (5, "records", None),
        (6, "records", "records"),
        (7, "records", "records"),
    ],
)
def test_a_document_is_in_a_window_or_counted_for_what_is_wrong_with_it(serial, of_dated, of_picky):
    value = document(b"text", serial, AT_MS)
    for view, counted in ((DATED, of_dated), (PICKY, of_picky)):
        assert wanted(view, value).counts == Counter([counted] if counted else [])


def test_a_window_has_the_newest_value_and_tombstones_are_in_none():
    def at(ms: int, value: str) -> bytes:
        return json.dumps({"at": AT_MS + ms, "p": value}).encode()

    found = wanted(DATED, at(5, "newest"), None, at(3, "older"), json.dumps({"at": AT_MS + 9}).encode())
    assert found.windows == {(KEY, AT_MS): (3, "newest")}


def differences(view: str, windows: Windows, **counts: int) -> list[str]:
    expected_here = wanted(view, *(document(b"text", serial, AT_MS) for serial in (0, 7)))
    return _differences(view, expected_here, windows, Counter(counts))


def test_each_difference_between_a_view_and_the_log_is_a_fault():
    right: Windows = {(KEY, AT_MS - 1_000): (1, "text")}
    assert differences(DATED, right, invalid=1) == []
    assert "2 invalid records, the log 1" in differences(DATED, right, invalid=2)[0]
    assert "1 failed records, the log 0" in differences(DATED, right, invalid=1, failed=1)[0]
    assert any("has nothing of" in each for each in differences(DATED, {}, invalid=1))
    assert any(
        "'other'" in each for each in differences(DATED, {(KEY, AT_MS - 1_000): (1, "other")}, invalid=1)
    )
    assert any("an hour late" in each for each in differences(DATED, {}, invalid=1, late=1))
    assert differences(LATE, {}, invalid=1, late=1) == []
    assert any(
        "has 2 records, 1 of them late" in each for each in differences(LATE, right, invalid=1, late=1)
    )
