"""The documented requests of REST Proxy, kprf and HTTP: those of tests/compat/cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.compat.cases import fill, load_cases, names_of
from tests.compat.targets import LIMITED, SPENDING
from tests.contract.hosts.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.compat.cases import CompatCase
    from tests.contract.hosts.case import Names

READ = ("GET", "HEAD")


def compat_cases(names: Names) -> Iterator[Case]:
    """The cases of the default mode of the service, but those with a topic over its limit."""
    return _cases(names, "", is_limited=False)


def kprf_cases(names: Names) -> Iterator[Case]:
    """The cases of kprf's mode."""
    return _cases(names, "kprf", is_limited=False)


def limited_cases(names: Names) -> Iterator[Case]:
    """The cases with a topic over its limit."""
    return _cases(names, "", is_limited=True)


def spending_cases(names: Names) -> Iterator[Case]:
    """The request after which the topic is over its limit."""
    body = json.dumps(SPENDING).replace(LIMITED, names.out("limited")).encode()
    yield Case("POST", "/push", (("Content-Type", "application/json"),), body)


def _cases(names: Names, mode: str, *, is_limited: bool) -> Iterator[Case]:
    for title, case in load_cases("").items():
        if case.mode == mode and case.names("limited") == is_limited:
            yield _case(title, case, names)


def _case(title: str, case: CompatCase, names: Names) -> Case:
    known = {
        "topic": "hosts-flights" if case.method in READ else names.out("compat"),
        "avro_topic": names.out("avro"),
        "json_topic": names.out("jsonschema"),
        "proto_topic": names.out("protobuf"),
        "cluster": names.cluster,
        "record": "compat-record",
        "etag": '"4-1"',
        "long": "x" * 8_000,
        "large": "x" * 1_048_577,
        "limited": names.out("limited"),
        "unknown": "hosts-nowhere",
    }
    filled = names_of(case, known, lambda subject, schema, kind="AVRO": names.register(subject, schema, kind))
    headers = {name: str(fill(value, filled)) for name, value in case.headers.items()}
    path = str(fill(case.path, filled))
    return Case(
        case.method,
        path,
        tuple(headers.items()),
        case.request_body(filled),
        floats=case.method not in READ,
        label=f"compat: {title}",
    )
