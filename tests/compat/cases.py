"""Requests with the answers that REST Proxy and kprf document, or their code gives, and what HTTP asks for.

As data, in `cases/*.json`:

    {"name": ..., "source": where the answer is documented, "method": "POST", "path": "/topics/{topic}",
     "headers": {...}, "body": JSON, or "text": as it is sent, "status": 200, "answer_type": ...,
     "answer": the document, or "reports": the documents of a stream, "mode": of the service, as "kprf",
     "behind_gateway": {"reason": why API Gateway answers before a function does, "status": ..., ...}}

A name in `setup` is the id of the schema that is registered there: [subject, schema], or with its type behind
them. `needs` names what the service must have besides. With `"gzip": true` the body is compressed. {record}
is a key of the topic with the value `RECORD`, {etag} its tag. An answer may have more members than the case.
"$string", "$integer", "$boolean" and "$array" stand for any value of the type, "$position" for a position,
"$any" for anything; ["$all", X] is an array of at least one X, ["$contains", X] one that has X.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCHEMA_TOPICS = ("avro_topic", "json_topic", "proto_topic")
RECORD_KEY, RECORD = "compat-record", b'{"dest": "SFO"}'
CASES = Path(__file__).parent / "cases"
PRODUCTS = ("http", "kprf", "rest_proxy")
"""How the names of the files begin."""
_POSITION = re.compile(r"\d+:\d+")
KINDS: dict[str, Callable[[Any], bool]] = {
    "$any": lambda _: True,
    "$array": lambda found: type(found) is list,
    "$boolean": lambda found: type(found) is bool,
    "$integer": lambda found: type(found) is int,
    "$position": lambda found: isinstance(found, str) and _POSITION.fullmatch(found) is not None,
    "$string": lambda found: type(found) is str,
}


@dataclass(frozen=True, slots=True)
class CompatCase:
    name: str
    source: str
    method: str
    path: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    setup: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: Sequence[str] = ()
    body: Any = None
    text: str | None = None
    answer_type: str = ""
    answer: Any = None
    reports: list[Any] | None = None
    mode: str = ""
    behind_gateway: Mapping[str, Any] = field(default_factory=dict)
    gzip: bool = False

    @property
    def needs_registry(self) -> bool:
        """Whether the answer depends on a Schema Registry."""
        return bool(self.setup) or "registry" in self.needs or any(map(self.names, SCHEMA_TOPICS))

    def names(self, name: str) -> bool:
        """Whether the request has a name to fill in."""
        return f"{{{name}}}" in f"{self.path} {self.text} {json.dumps(self.body)}"

    def as_behind_gateway(self) -> CompatCase:
        """The case with what the API Gateway answers: that is checked as strictly."""
        return replace(self, **{name: each for name, each in self.behind_gateway.items() if name != "reason"})

    def request_body(self, names: Mapping[str, Any]) -> bytes:
        if self.text is not None:
            return str(fill(self.text, names)).encode()
        body = b"" if self.body is None else json.dumps(fill(self.body, names)).encode()
        return gzip.compress(body) if self.gzip else body


def load_cases(product: str) -> dict[str, CompatCase]:
    """Return all cases of a product by file and name; of all products where it is "".

    Raises FileNotFoundError if there is none: a suite would send nothing, and pass.
    """
    found = {
        f"{path.stem}: {each['name']}": CompatCase(**each)
        for path in sorted(CASES.glob(f"{product}*.json"))
        for each in json.loads(path.read_text(encoding="utf-8"))
    }
    if not found:
        raise FileNotFoundError(f"{CASES} has no cases of {product}")
    return found


def names_of(case: CompatCase, known: Mapping[str, str], register: Callable[..., int]) -> dict[str, Any]:
    """Return what the case's names stand for; `register` registers a schema and returns its id."""
    names: dict[str, Any] = dict(known)
    for name, (subject, *schema) in case.setup.items():
        names[name] = register(fill(subject, names), *schema)
    return names


def fill(template: Any, names: Mapping[str, Any]) -> Any:
    """Return the template with its names filled in; one that is a whole string keeps its type as text."""
    if isinstance(template, dict):
        return {name: fill(value, names) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, names) for value in template]
    if isinstance(template, str):
        for name, value in names.items():
            template = template.replace(f"{{{name}}}", str(value))
    return template


def check_answer(
    case: CompatCase, names: Mapping[str, Any], status: int, content_type: str, body: bytes
) -> None:
    """Assert that an answer is the case's."""
    assert status == case.status, f"{case.source}: {body[:2000]!r}"
    if case.answer_type:
        assert content_type == case.answer_type
    if case.reports is not None:
        *reports, rest = body.decode().split("\r\n")
        assert rest == ""
        check(fill(case.reports, names), [json.loads(report) for report in reports])
    if case.answer is not None:
        check(fill(case.answer, names), json.loads(body))


def check(expected: Any, found: Any, where: str = "$") -> None:
    """Assert that a document is as expected, with any further members."""
    if isinstance(expected, str) and expected in KINDS:
        assert KINDS[expected](found), f"{where} is {found!r}, not {expected}"
    elif isinstance(expected, dict):
        assert isinstance(found, dict), f"{where} is {found!r}"
        assert expected.keys() <= found.keys(), f"{where} lacks {sorted(expected.keys() - found.keys())}"
        for name, value in expected.items():
            check(value, found[name], f"{where}.{name}")
    elif isinstance(expected, list) and expected[:1] == ["$contains"]:
        assert expected[1] in found, f"{where} has no {expected[1]!r}: {found!r}"
    elif isinstance(expected, list):
        assert isinstance(found, list), f"{where} is {found!r}"
        wanted = expected[1:] * max(1, len(found)) if expected[:1] == ["$all"] else expected
        assert len(found) == len(wanted), f"{where} has {len(found)} entries"
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            check(one, other, f"{where}[{index}]")
    else:
        assert (found, type(found)) == (expected, type(expected)), f"{where} is {found!r}, not {expected!r}"
