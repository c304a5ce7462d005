"""Every parameter of every route, as docs/openapi.json has it: good values, bounds, wrong ones, repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tests.contract.hosts.corpus.base import base
from tests.contract.hosts.topics import BASE_MS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Case, Names

DOCUMENT = Path(__file__).parents[4] / "docs" / "openapi.json"
_TIMES = (
    *("0", str(BASE_MS + 5_000), "2023-11-14T22:13:25Z", "2023-11-14", "20231114T221325Z", "-1", "now"),
    *("253402300799999", "253402300800000", "9999-12-31T23:59:59.999Z", "2023-11-14T22:13:25.5-05:00"),
    *("2023-11-15T00:13:25 02:00", "2023-11-14T22:13:25+02:00", "1969-12-31T23:59:59Z", "2023-02-30"),
    *("2" * 65, "٣", "", " 1", "1e3"),
)
_BOOLEANS = ("true", "false", "TRUE", "1", "", " true", "yes")
_ENUM = ("TEXT", "", "hex", "json ")
_KEYS = ("a", "", "N14", "ann|", "a\x00", "\udcff", "ü", "%", "YW5u", "!", "YW5ufA==", "k" * 70_000)
_TAGS = (
    *('"0-0"', "*", 'W/"0-0"', '"x", "2-0"', '"2-0"', 'W/"2-0"', '"2-0-bytes"', "", ",", "2-0", "\udcff"),
    '"' + "x" * 9_000 + '"',
)
_DATES = (
    *("Tue, 14 Nov 2023 22:13:20 GMT", "Fri, 31 Dec 2100 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"),
    *("Tuesday, 14-Nov-23 22:13:20 GMT", "Tue Nov 14 22:13:20 2023", "Tue, 14 Nov 2023 22:13:20 +0100"),
    *("yesterday", ""),
)
VALUES: dict[str, tuple[str, ...]] = {
    "after": ("", "hosts-flights", "~", "x" * 249, "x" * 250, "\udcff"),
    "as_of": (*_TIMES, "2:0", "0:0", "2:999", "99:0", "-1:0", "1:", "1" * 19 + ":1", " 2:1"),
    "at": (*_TIMES, "earliest", "latest", "max", "EARLIEST", "first"),
    "cursor": ("", "abc", "A" * 22, "A" * 90_001, "AAAA====", "_-" * 30, "ü" * 30),
    "fields": (
        *("origin", "m.x", "m.y", "origin,dest", " origin , dest ", "n", "nothing", "a,,b", "a.", ".a"),
        *("m.x,m", "origin,origin", "m.x.y", "x" * 200, "x" * 201, "", ",", "ü"),
        *(",".join(["a"] * 50), ",".join(["a"] * 51)),
    ),
    "from": (*_KEYS, *_TIMES),
    "to": (*_KEYS, *_TIMES),
    "key_from": _KEYS,
    "key_to": _KEYS,
    "prefix": (*_KEYS, PREFIX, "x" * 250),
    "isolation": ("read_committed", "read_uncommitted", "READ_COMMITTED", "", "none"),
    "offset": (
        *("0", "3", "earliest", "latest", "999999", "9" * 18, "9" * 19, "-1", "", "max", "1.0", "٣"),
        "Latest",
    ),
    "topics": (
        *("", "hosts-flights", "hosts-flights,hosts-joined", "hosts-flights,hosts-flights", "..,."),
        *("hosts-flights,hosts-nowhere", "hosts-nowhere,hosts-flights", "hosts-flights,hosts-four", "a b,c"),
        *("hosts-flights,hosts-joined,hosts-hidden", "hosts-flights,", ",", "hosts-flights, hosts-joined"),
        *("hosts-flights,hosts-stale", "hosts-flights,hosts-begun", "hosts-flights,hosts-building"),
        *("hosts-joined,hosts-flights", "hosts-flights,hosts-crc", "hosts-flights,hosts-incomplete"),
        *(",".join(f"t{n}" for n in range(10)), ",".join(f"t{n}" for n in range(11)), "x" * 2_501),
    ),
    "topic": (
        *("hosts-flights", "hosts-striped", "hosts-trips", "hosts-nowhere", "", "a b", "x" * 249, "x" * 250),
        *("hosts-building", "hosts-corrupt-layout", "hosts-begun", "~hosts-puts", "__consumer_offsets"),
        *("..", "%68osts-flights"),
    ),
    "Prefer": (
        *("wait=0", "wait=0.02", "wait=1e9", "wait=99999", "wait", "wait=", 'wait="0.01"', "wait=-1"),
        *("Wait=0.01; x=y", "respond-async", "respond-async, wait=0", "RESPOND-ASYNC", "wait=1, wait=0"),
        *("", "x" * 1_001, "return=minimal"),
    ),
    "Idempotency-Key": ("", "{tag} key", "ü", "{tag}" + "x" * 245, "{tag}" + "x" * 246, "\t", "{tag}"),
    "Keylane-Min-Position": (
        *("2:0", "2:5", "2:99999", "0:0", "4:0", "4:99999", "9:0", "99:0", "20000:0", "1:", ":", "", "x"),
        *(" 2:0 ", "2:0:0", "-1:0", "1" * 19 + ":0", "2:" + "9" * 18),
    ),
    "Last-Event-ID": (
        *("2:0", "2:5", "0:0,1:0", "0:3,1:2", "0:99,1:99", "", " ", "x", "0:0,", "1:", "5:1", "0:1,0:2"),
        "0:" + "9" * 19,
    ),
    "If-None-Match": _TAGS,
    "If-Match": _TAGS,
    "If-Modified-Since": _DATES,
    "If-Unmodified-Since": _DATES,
}
"""Values of parameters by name. One that is not here has those that follow from its schema."""


class Declared(NamedTuple):
    """A parameter of an operation, as OpenAPI has it."""

    operation: str
    method: str
    path: str
    place: str
    name: str
    schema: dict[str, Any]


@cache
def declared() -> tuple[Declared, ...]:
    """All parameters of all operations, those of HEAD as those of GET."""
    return tuple(_declared())


def _declared() -> Iterator[Declared]:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"]
            for given in operation.get("parameters", []):
                place = given.get("$ref", "").rpartition("/")[2]
                parameter = document["components"]["parameters"][place] if place else given
                yield Declared(
                    name, method.upper(), path, parameter["in"], parameter["name"], parameter["schema"]
                )


def values_of(parameter: Declared) -> list[str]:
    """What is sent for a parameter."""
    schema = parameter.schema
    if "enum" in schema:
        return [*schema["enum"], *_ENUM]
    if schema["type"] == "boolean":
        return list(_BOOLEANS)
    if schema["type"] == "integer":
        least, most = schema["minimum"], schema["maximum"]
        numbers = dict.fromkeys((least, least + 1, most, most + 1, 7))
        return [*map(str, numbers), str(least - 1), "", "x", "1.5", " 5", "0005", "٣", "9" * 40]
    if parameter.name in VALUES:
        return list(dict.fromkeys(VALUES[parameter.name]))
    return [*map(str, schema.get("examples", ())), "", "x", "x" * (schema.get("maxLength", 200) + 1)]


def parameter_cases(names: Names) -> Iterator[Case]:
    """Each parameter with each value, alone and beside another of its name; and one that no route has."""
    seen = set()
    for parameter in declared():
        if parameter.place == "path" or parameter.method == "HEAD":
            continue
        case = base(parameter.operation, names)
        if parameter.operation not in seen:
            seen.add(parameter.operation)
            for unknown in ("nonsense=1", "=", "Limit=1", "formt=x", "count=1", "%ff=1", "a%26b=c"):
                yield _with_query(case, unknown)
        values = [each.replace("{tag}", names.tag) for each in values_of(parameter)]
        for value in values:
            yield _with(case, parameter, value)
        first, second, *_ = values
        for pair in ((first, second), (second, first)):
            yield _with(_with(case, parameter, pair[0]), parameter, pair[1], again=True)
    for operation in sorted(seen):
        yield from (_with_query(base(operation, names), query) for query in ("", "&", "&&a=b"))


def _with(case: Case, parameter: Declared, value: str, *, again: bool = False) -> Case:
    events = 1 if case.events and parameter.name == "Last-Event-ID" else case.events
    case = replace(case, events=events)
    if parameter.place == "header":
        safe = value.replace("\t", " ")
        return replace(case, headers=(*case.headers, (parameter.name, safe)))
    text = quote(value.encode("utf-8", "surrogateescape"), safe="")
    return _with_query(case if again else _without(case, parameter.name), f"{parameter.name}={text}")


def _with_query(case: Case, text: str) -> Case:
    return replace(case, target=f"{case.target}{'&' if '?' in case.target else '?'}{text}")


def _without(case: Case, name: str) -> Case:
    path, _, query = case.target.partition("?")
    kept = "&".join(pair for pair in query.split("&") if pair and pair.partition("=")[0] != name)
    return replace(case, target=f"{path}?{kept}" if kept else path)
