"""The comparer finds what differs, and the normaliser leaves it to be found."""

from __future__ import annotations

import pytest
from tests.contract.hosts.case import Answer, Case
from tests.contract.hosts.compare import Meant, Verdict, compared, differences
from tests.contract.hosts.normalise import Run, Span, normalised, normalised_line
from tests.contract.hosts.recording import Recorded

TAG = "zz1a2b3c4d"
RUN = Run.of(TAG, Span(1_795_000_000_000, 1_795_000_600_000))
ID = "0f8e3c1a-7b61-41e6-aa41-93e8deadbeef"
CASE = Case("GET", "/topics/t/keys/k")
GOOD = Answer(200, (("content-type", "application/json"), ("etag", '"8-0"')), b'{"n": 1}')


def recording(answer: Answer, title: str = "GET /") -> dict[str, Recorded]:
    return {title: Recorded("get_key", answer)}


def found(one: Answer, other: Answer, **options) -> list[tuple[str, str, str]]:
    rows = differences("well", recording(one), recording(other), **options)
    return [(each.part, each.one, each.other) for each in rows]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (GOOD, []),
        (GOOD._replace(status=201), [("status", "200", "201")]),
        (GOOD._replace(body=b'{"n":1}'), [("body", '{"n": 1}', '{"n":1}')]),
        (GOOD._replace(body=b"\xff"), [("body", '{"n": 1}', "\\xff")]),
        (GOOD._replace(headers=GOOD.headers[:1]), [("header etag", '"8-0"', "(none)")]),
        (
            GOOD._replace(headers=(*GOOD.headers, ("etag", "x"))),
            [("header etag", '"8-0"', '"8-0"\nx')],
        ),
        (
            GOOD._replace(headers=(GOOD.headers[0], ("ETag", '"8-0"'))),
            [("header ETag", "(none)", '"8-0"'), ("header etag", '"8-0"', "(none)")],
        ),
    ],
)
def test_each_part_of_an_answer_is_compared(other: Answer, expected: list[tuple[str, str, str]]):
    assert found(GOOD, other) == expected


def test_between_hosts_the_names_case_and_the_connection_s_headers_do_not_count():
    other = Answer(200, (("Content-Type", "application/json"), ("ETag", '"8-0"'), ("Date", "x")), GOOD.body)
    assert found(GOOD, other, between_hosts=True) == []
    assert found(GOOD, other._replace(status=404), between_hosts=True) == [("status", "200", "404")]


def test_a_request_that_one_recording_lacks_is_a_difference():
    rows = list(differences("well", recording(GOOD, "a"), recording(GOOD, "b")))
    assert [(each.title, each.part, each.one, each.other) for each in rows] == [
        ("a", "recorded", "yes", "no"),
        ("b", "recorded", "no", "yes"),
    ]
    assert list(differences("well", recording(GOOD, "a"), {}, between_hosts=True)) == []


def test_a_difference_is_meant_if_an_entry_fits_all_of_it_and_an_entry_without_one_is_reported():
    table = [
        Meant("etags change", world="w*", operation="get_key", part="header etag", other='"9.*'),
        Meant("never", title="PUT"),
    ]
    one, other = GOOD, GOOD._replace(headers=(GOOD.headers[0], ("etag", '"9-0"')), status=304)
    verdict = compared(table, {"well": recording(one)}, {"well": recording(other)})
    assert [each.part for each in verdict.unmeant] == ["status"]
    assert [each.reason for each in verdict.unused] == ["never"]
    assert any("etags change" in line for line in verdict.render())
    assert any("status" in line for line in verdict.render())
    assert Verdict([]).unmeant == []


def test_a_world_that_one_side_lacks_is_different():
    assert compared([], {"well": recording(GOOD)}, {}).unmeant


def shown(body: bytes, **headers: str) -> tuple[bytes, dict[str, str]]:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    answer = normalised(Answer(200, pairs, body), CASE, RUN)
    return answer.body, dict(answer.headers)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"age_ms": 95216549888}', b'{"age_ms": AGE}'),
        (b'{"age_ms": 0}', b'{"age_ms": 0}'),
        (b'{"age_ms": 1500}', b'{"age_ms": 1500}'),
        (b'"timestamp": 1795000300000', b'"timestamp": NOW'),
        (b'"timestamp": 1700000000000', b'"timestamp": 1700000000000'),
        (b'"offset": 1795000300000.5', b'"offset": 1795000300000.5'),
        (b'"2026-11-18T11:08:00.25Z"', b'"NOW"'),
        (b'"2026-11-18T12:08:00Z"', b'"2026-11-18T12:08:00Z"'),
        (b"hosts-%b-json" % TAG.encode(), b"hosts-RUN-json"),
        (b'"took_ms": 12', b'"took_ms": TOOK'),
        (b'"partition": 1, "offset": 12', b'"partition": 1, "offset": 12'),
        (ID.encode(), ID.encode()),
        (b'"8c5abb1ddc6842dbaa5d63be1768ba98-3"', b'"QUEUED-3"'),
    ],
)
def test_only_times_of_the_recording_ages_and_random_ids_are_replaced(body: bytes, expected: bytes):
    assert shown(body)[0] == expected


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Wed, 18 Nov 2026 11:08:00 GMT", "NOW"),
        ("Tue, 14 Nov 2023 22:13:20 GMT", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ],
)
def test_a_record_of_times_to_come_was_modified_now(date: str, expected: str):
    assert shown(b"", last_modified=date)[1] == {"last-modified": expected}


def test_the_request_s_id_must_be_the_one_in_the_header():
    body, headers = shown(b'"instance": "%b"' % ID.encode(), **{"x-amzn-requestid": ID})
    assert (body, headers) == (b'"instance": "REQUEST-ID"', {"x-amzn-requestid": "REQUEST-ID"})
    other = ID.replace("0f8e", "1f8e").encode()
    assert shown(b'"instance": "%b"' % other, **{"x-amzn-requestid": ID})[0] == b'"instance": "%b"' % other


def test_a_length_that_is_not_the_body_s_is_kept():
    assert shown(b"abc", **{"content-length": "3"})[1] == {"content-length": "LENGTH"}
    assert shown(b"abc", **{"content-length": "4"})[1] == {"content-length": "4"}


def test_positions_are_replaced_for_records_without_a_key_alone():
    body = b'{"partition": 1, "offset": 12, "position": "1:12"}'
    floating = normalised(Answer(200, (), body), Case("POST", "/push", floats=True), RUN)
    assert floating.body == b'{"partition": ANY, "offset": ANY, "position": "ANY"}'
    assert shown(body)[0] == body


def test_a_record_may_have_the_id_of_any_request_of_its_run():
    answers = [Answer(200, (("x-amzn-requestid", ID),)), Answer(200)]
    run = Run.of(TAG, RUN.span, answers)
    other = ID.replace("0f8e", "1f8e")
    assert normalised_line(f'["{ID}", "{other}"]', run) == f'["REQUEST-ID", "{other}"]'.encode()


def test_two_limits_that_end_at_once_are_one_where_something_hangs():
    bodies = [b"no node of the Redis Cluster returned the slot map", b"Redis did not answer in time"]
    for hangs, count in ((True, 1), (False, 2)):
        run = Run.of(TAG, RUN.span, hangs=hangs)
        assert len({normalised(Answer(503, (), body), CASE, run).body for body in bodies}) == count
