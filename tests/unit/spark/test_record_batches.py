"""Record batches into columns: what a consumer sees of them, and what is refused."""

from __future__ import annotations

import random

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import (
    ABORT,
    APPEND_TIME,
    COMMIT,
    CONTROL,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Sent,
    a_batch,
)

from keylane.model.keys import LARGEST_KEY
from keylane_spark.log import compression, record_batches
from keylane_spark.log.record_batches import (
    AbortedTransaction,
    BatchError,
    OldFormat,
    Piece,
    next_offset,
    parse_batches,
    parse_together,
)
from keylane_spark.rows.records import Rows

END = 2**62
HEAD_BYTES = 61


def seen(data: bytes, begin: int = 0, end: int = END, aborted=()) -> list[Sent]:
    found = parse_batches(data, begin, end, aborted=aborted, with_headers=True)
    return [each for rows in found for each in sent(rows)]


def sent(rows: Rows) -> list[Sent]:
    columns = rows.keys.to_pylist(), rows.values.to_pylist(), rows.headers.to_pylist()
    return [
        Sent(offset, time, key, value, tuple((each["key"], each["value"]) for each in headers or ()))
        for offset, time, key, value, headers in zip(
            rows.offsets.tolist(), rows.timestamps_ms.tolist(), *columns, strict=True
        )
    ]


maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple)
contents = st.tuples(st.integers(-1, 2**42), maybe_bytes, maybe_bytes, headers)


@st.composite
def logs(draw):
    """Batches, and their records: offsets have gaps, within batches and between them."""
    data, records, offset = b"", [], draw(st.integers(0, 2**40))
    for of_batch in draw(st.lists(st.lists(contents, min_size=1, max_size=6), min_size=1, max_size=4)):
        batch = []
        for content in of_batch:
            offset += draw(st.integers(1, 300))
            batch.append(Sent(offset, *content))
        codec, xerial = draw(st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD])), draw(st.booleans())
        data += a_batch(*batch, codec=codec, xerial=xerial)
        records += batch
    return data, records


@given(logs(), st.data())
@settings(max_examples=40, deadline=None)
def test_every_record_of_the_range_comes_as_it_was_sent(log, data):
    encoded, records = log
    assert seen(encoded) == records
    assert next_offset(encoded, 0) == records[-1].offset + 1
    begin = data.draw(st.sampled_from(records)).offset
    end = data.draw(st.integers(begin, records[-1].offset + 1))
    assert seen(encoded, begin, end) == [each for each in records if begin <= each.offset < end]


@given(st.lists(logs(), min_size=1, max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_pieces_of_several_logs_parsed_together_have_what_each_has(several, data):
    pieces = []
    for encoded, records in several:
        begin = data.draw(st.sampled_from(records)).offset
        pieces.append(Piece(encoded, begin, data.draw(st.integers(begin, records[-1].offset + 1))))
    apart = [seen(*piece) for piece in pieces]
    found = parse_together(pieces, with_headers=True)
    if found is None:
        assert not any(apart)
        return
    rows, counts = found
    ends = counts.cumsum().tolist()
    together = [sent(rows.part(begin, end)) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    assert together == apart


def test_as_many_pieces_are_parsed_together_as_are_not_too_large_when_decompressed(monkeypatch):
    data = a_batch(Sent(5, 1, b"k", b"v" * 50, ()), codec=GZIP)
    rows, counts = parse_together([Piece(data, 0, END)] * 3)
    assert (len(rows), counts.tolist()) == (3, [1, 1, 1])
    monkeypatch.setattr(record_batches, "_TOGETHER_BYTES", 140)
    rows, counts = parse_together([Piece(data, 0, END)] * 3)
    assert (len(rows), counts.tolist()) == (2, [1, 1])
    monkeypatch.setattr(record_batches, "_TOGETHER_BYTES", 10)
    assert parse_together([Piece(data, 0, END)] * 3) is None


def test_an_aborted_transaction_hides_the_records_of_its_own_piece_only():
    data = transactions()
    one, other = Piece(data, 0, END), Piece(data, 0, END, [AbortedTransaction(7, 0)])
    rows, counts = parse_together([other, one], with_headers=True)
    assert [sent(rows)[: counts[0]], sent(rows)[counts[0] :]] == [seen(*other), seen(*one)]
    assert counts[0] != counts[1]


@given(logs(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_log_that_is_cut_yields_whole_batches_only(log, data):
    encoded, records = log
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    reached = next_offset(cut, 0)
    assert seen(cut) == [each for each in records if each.offset < reached]
    assert reached <= records[-1].offset


@given(logs(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_byte_that_was_changed_is_noticed(log, data):
    encoded, _ = log
    length = int.from_bytes(encoded[8:12], "big") + 12
    at = data.draw(st.integers(16, length - 1))
    changed = encoded[:at] + bytes([encoded[at] ^ data.draw(st.integers(1, 255))]) + encoded[at + 1 :]
    with pytest.raises(BatchError):
        seen(changed)


@pytest.mark.parametrize("lengths", [[10] * 5000, list(range(3000)), [5, 5000] * 200, [70_000] * 3 + [1] * 9])
def test_records_of_equal_and_of_different_lengths_are_found(lengths):
    records = [Sent(offset, value=b"x" * length) for offset, length in enumerate(lengths)]
    assert seen(a_batch(*records)) == records


@pytest.mark.parametrize(("batches", "longest"), [(3, 1), (3, 20_000), (200, 1), (200, 300)])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_records_of_several_batches_are_found_at_once(batches, longest, seed):
    chance = random.Random(seed)
    records, data = [], b""
    for number in range(batches):
        size = chance.randrange(longest)
        lengths = [size] * chance.randint(1, 90) + [chance.randrange(longest)] * chance.randrange(3)
        lengths += [chance.randrange(100) for _ in range(chance.choice([0, 0, 9]))]
        batch = [Sent(1000 * number + at, value=b"x" * length) for at, length in enumerate(lengths)]
        records += batch
        data += a_batch(*batch)
    assert seen(data) == records


def test_a_record_that_ends_in_the_next_batch_is_not_read():
    one, other = bytearray(a_batch(Sent(0, value=b"one"))), a_batch(Sent(1, value=b"other"))
    for at in (HEAD_BYTES, one.rindex(b"one") - 1):  # the lengths of the record and of its value
        one[at] += 2
    one[17:21] = google_crc32c.value(bytes(one[21:])).to_bytes(4, "big")
    with pytest.raises(BatchError, match="a batch has -1 bytes behind its last record"):
        seen(bytes(one) + other)


def test_times_of_the_log_replace_those_of_the_producer():
    records = [Sent(0, 5), Sent(1, 90), Sent(2, 40)]
    assert [each.timestamp_ms for each in seen(a_batch(*records, attributes=APPEND_TIME))] == [90, 90, 90]
    assert [each.timestamp_ms for each in seen(a_batch(*records))] == [5, 90, 40]


def transactions() -> bytes:
    """Producer 7 aborts 0 to 2 and commits 5; producer 8 commits 1, in between."""
    control = TRANSACTIONAL | CONTROL
    return b"".join(
        [
            a_batch(Sent(0), attributes=TRANSACTIONAL, producer_id=7),
            a_batch(Sent(1), attributes=TRANSACTIONAL, producer_id=8),
            a_batch(Sent(2), attributes=TRANSACTIONAL, producer_id=7),
            a_batch(Sent(3, key=ABORT, value=b""), attributes=control, producer_id=7),
            a_batch(Sent(4, key=COMMIT, value=b""), attributes=control, producer_id=8),
            a_batch(Sent(5), attributes=TRANSACTIONAL, producer_id=7),
            a_batch(Sent(6, key=COMMIT, value=b""), attributes=control, producer_id=7),
        ]
    )


def test_aborted_transactions_and_control_records_are_not_seen():
    found = seen(transactions(), aborted=[AbortedTransaction(7, 0)])
    assert [each.offset for each in found] == [1, 5]
    assert next_offset(transactions(), 0) == 7


def test_uncommitted_reads_see_all_but_control_records():
    assert [each.offset for each in seen(transactions())] == [0, 1, 2, 5]


def test_a_transaction_that_is_aborted_later_does_not_hide_an_earlier_one_of_the_same_producer():
    control = TRANSACTIONAL | CONTROL
    log = [
        a_batch(Sent(0), attributes=TRANSACTIONAL, producer_id=7),
        a_batch(Sent(1, key=COMMIT, value=b""), attributes=control, producer_id=7),
        a_batch(Sent(2), attributes=TRANSACTIONAL, producer_id=7),
        a_batch(Sent(3, key=ABORT, value=b""), attributes=control, producer_id=7),
    ]
    found = seen(b"".join(log), aborted=[AbortedTransaction(7, 2)])
    assert [each.offset for each in found] == [0]


def test_a_batch_whose_records_were_compacted_away_moves_the_position_only():
    data = a_batch(covers=(0, 9)) + a_batch(Sent(12), covers=(10, 19))
    assert [each.offset for each in seen(data)] == [12]
    assert next_offset(data, 0) == 20


def test_batches_are_parsed_in_groups_of_bounded_size(monkeypatch):
    monkeypatch.setattr(record_batches, "_MAX_GROUP_BYTES", 1000)
    records = [Sent(offset, value=b"x" * 300) for offset in range(20)]
    data = b"".join(a_batch(record, codec=LZ4) for record in records)
    groups = list(parse_batches(data, 0, END))
    assert len(groups) > 5
    assert seen(data) == records


def test_records_of_before_kafka_0_11_are_refused():
    batch = bytearray(a_batch(Sent(3)))
    batch[16] = 1
    with pytest.raises(OldFormat, match="offset 3"):
        seen(bytes(batch))


def test_a_batch_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(compression, "MAX_BYTES", 1000)
    records = [Sent(offset, value=b"x" * 100) for offset in range(20)]
    for codec, xerial in ((GZIP, False), (SNAPPY, False), (SNAPPY, True), (LZ4, False), (ZSTD, False)):
        with pytest.raises(BatchError, match="bytes"):
            seen(a_batch(*records, codec=codec, xerial=xerial))


def test_a_header_name_that_is_not_utf_8_is_read_as_javas_client_does():
    batch = a_batch(Sent(0, headers=(("ab", b"1"),)))
    records = batch[61:].replace(b"ab", b"a\xff")
    rebuilt = a_batch(Sent(0, headers=(("ab", b"1"),)))[:61] + records
    head = rebuilt[21:]
    crc = record_batches.google_crc32c.value(head).to_bytes(4, "big")
    assert seen(rebuilt[:17] + crc + head) == [Sent(0, headers=(("a\ufffd", b"1"),))]


def test_a_log_whose_offsets_go_back_is_refused():
    data = a_batch(Sent(5), covers=(3, 8)) + a_batch(Sent(8))
    with pytest.raises(BatchError, match="offset 8 comes after offset 8"):
        seen(data)


def test_a_length_that_no_batch_has_is_refused():
    data = bytearray(a_batch(Sent(5)))
    data[8:12] = (-12).to_bytes(4, "big", signed=True)
    assert next_offset(bytes(data), 5) == 5
    with pytest.raises(BatchError, match="length of -12"):
        seen(bytes(data))


def test_a_record_with_a_key_that_is_too_large_for_the_state_is_one_without_a_key():
    batch = a_batch(
        Sent(0, key=b"k" * LARGEST_KEY), Sent(1, key=b"k" * (LARGEST_KEY + 1)), Sent(2, key=b""), codec=ZSTD
    )
    (rows,) = parse_batches(batch, 0, 3)
    assert rows.keys.to_pylist() == [b"k" * LARGEST_KEY, None, b""]
    assert rows.values.to_pylist() == [b"v"] * 3
