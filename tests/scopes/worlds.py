"""Random topics, scopes and requests; and which records a scope permits, decided on the values themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.support.builders import NOW_MS, a_layout
from tests.support.indexed_state import StoredRecord

from keylane.access.scopes import KeyRule, PermittedRows, Scope, ScopeRule
from keylane.formats.projection import project
from keylane.model.records import Options

if TYPE_CHECKING:
    from random import Random

    from keylane.model.records import Layout

TENANTS = ("acme", "acme/eu", "ACME", "zoo", "z" * 64, "z" * 64 + "1", "z" * 70, "", "é", "a*")
STATUSES = ("open", "paid", "sent")
TAGS = ("red", "green", "blue", "x" * 80)
NUMBERS = ("0", "1", "1.0", "10", "-3.5", "1e3", '"7"')
FIELDS = (
    ("amount", "number"),
    ("done", "boolean"),
    ("nested.region", "text"),
    ("status", "text"),
    ("tags", "texts"),
    ("tenant", "text"),
)
PATHS = (
    "id",
    "tenant",
    "status",
    "amount",
    "nested",
    "nested.region",
    "tags",
    "lines.amount",
    "done",
    "missing",
)
KEYS = ("a", "a/1", "a/2", "a/1/x", "ab", "A/1", "b", "b/1", "a*", "a%2F1", "é/1", "a\u0301", "0", "\x01")


@dataclass(frozen=True, slots=True)
class World:
    """Topics with their records, and what one caller may see of them."""

    topics: dict[str, tuple[Layout, tuple[StoredRecord, ...]]]
    scope: Scope


def a_world(random: Random, number: int) -> World:
    """Return two topics that can be joined, and a scope for them."""
    has_past = random.random() < 0.3
    partition_by = random.choice(["key", "prefix:/"])
    is_typed = random.random() < 0.2
    # A value that is no object can't be shown in part: those have tests of their own.
    has_fields = random.random() < 0.5
    topics = {}
    for name in (f"orders-{number}", f"flights-{number}"):
        options = Options(
            index=random.choice([1, 1, 2]),
            fields=FIELDS,
            indexes=(("by_status", ("tenant", "status")),) if random.random() < 0.5 else (),
            history_count=5 if has_past else None,
            headers=random.random() < 0.2,
            value_format=random.choice(["auto", "auto", "json"]),
            key_fields=(("id", "string"),) if is_typed else (),
        )
        layout = a_layout(name, 3, options=options, partition_by="key" if is_typed else partition_by)
        topics[name] = (
            layout,
            tuple(_records(random, is_typed=is_typed, has_past=has_past, only_objects=has_fields)),
        )
    goes_by_keys = has_past and random.random() < 0.8
    return World(topics, _scope(random, tuple(topics), goes_by_keys=goes_by_keys, has_fields=has_fields))


def _records(random: Random, *, is_typed: bool, has_past: bool, only_objects: bool) -> list[StoredRecord]:
    keys = set(random.sample(KEYS, random.randint(0, len(KEYS))))
    keys |= {
        f"{random.choice(['a', 'b', 'c'])}/{random.randint(0, 40)}" for _ in range(random.choice([0, 5, 40]))
    }
    records = []
    for offset, key in enumerate(sorted(keys)):
        name = _stored_key(key) if is_typed else key.encode()
        past = ()
        if has_past:
            count = random.randint(0, 3)
            past = tuple(
                (
                    1000 * (each + 1) + offset,
                    NOW_MS - 100_000 * (count - each),
                    None if random.random() < 0.2 else _value(random, key, only_objects),
                )
                for each in range(count)
            )
        # Whether it is a stray must not matter; histories have them where their lanes say so.
        stray_of = random.randint(0, 2) if not has_past and random.random() < 0.2 else None
        records.append(
            StoredRecord(
                name, _value(random, key, only_objects), 10_000 + offset, NOW_MS - 1_000, past, stray_of
            )
        )
    return records


def _stored_key(key: str) -> bytes:
    from keylane.formats.connect_keys import quote  # noqa: PLC0415

    return f'{{"id":{quote(key)}}}'.encode()


def _value(random: Random, key: str, only_objects: bool) -> bytes:
    if random.random() < 0.05 and not only_objects:
        return b"[1, 2]"
    document: dict[str, Any] = {"id": key, "secret": random.randint(0, 9)}
    if random.random() < 0.95:
        document["tenant"] = (
            random.choice(TENANTS) if random.random() < 0.95 else random.choice([7, None, ["acme"]])
        )
    document["status"] = random.choice(STATUSES)
    document["tags"] = random.sample(TAGS, random.randint(0, 3))
    document["done"] = random.choice([True, False, None, "true"])
    document["nested"] = random.choice(
        [{"region": random.choice(["eu", "us"]), "depth": {"a": 1}}, "eu", None]
    )
    document["lines"] = random.choice([[{"amount": 1}], {"amount": 2, "price": 3}])
    text = json.dumps(document, ensure_ascii=random.random() < 0.5)
    return f'{text[:-1]}, "amount": {random.choice(NUMBERS)}}}'.encode()


def _scope(random: Random, topics: tuple[str, ...], *, goes_by_keys: bool, has_fields: bool) -> Scope:
    rules = []
    for number in range(random.choice([1, 1, 1, 2, 3])):
        key = None
        if random.random() < 0.5:
            text = random.choice([*KEYS, *KEYS, "a/", "b/", "c/1", ""])
            key = KeyRule(text, is_prefix=random.random() < 0.6)
        where = ()
        if not goes_by_keys and random.random() < 0.7:
            where = tuple(
                (name, _claims(random, name))
                for name in random.sample(
                    ["tenant", "status", "tags", "amount", "done", "nested.region"], random.choice([1, 1, 2])
                )
            )
        fields = (
            tuple(random.sample(PATHS, random.randint(0, 4)))
            if has_fields and random.random() < 0.7
            else None
        )
        # The first rule is for both topics, so that each may be asked for.
        read = topics if not number else (random.choice(topics),)
        rules.append(ScopeRule(PermittedRows(f"rule-{number}", key, where, fields), read=read))
    return Scope(f"caller-{random.randint(0, 9)}", tuple(rules))


def _claims(random: Random, name: str) -> tuple[Any, ...]:
    choices: dict[str, list[Any]] = {
        "tenant": [*TENANTS, 7, True],
        "status": [*STATUSES],
        "tags": [*TAGS],
        "amount": [1, 10, 1.0, 0, "1", True, 1000],
        "done": [True, False, "true"],
        "nested.region": ["eu", "us", "e"],
    }
    return tuple(random.choice(choices[name]) for _ in range(random.choice([1, 1, 2, 3])))


def permitted(world: World, topic: str) -> tuple[StoredRecord, ...]:
    """Return the records of a topic that the scope permits, with what it shows of their values."""
    layout, records = world.topics[topic]
    shown = []
    for record in records:
        rules = [rule for rule in world.scope.reads(topic) if _has(layout, rule, record)]
        if not rules:
            continue
        if all(rule.fields is not None for rule in rules):
            paths = tuple(
                dict.fromkeys(tuple(path.split(".")) for rule in rules for path in rule.fields or ())
            )
            text = project(record.value, paths)
            past = tuple(
                (at, time, None if value is None else _shown(value, paths)) for at, time, value in record.past
            )
            record = replace(record, value=(text or "").encode(), past=past)  # noqa: PLW2901
        shown.append(record)
    return tuple(shown)


def _shown(value: bytes, paths: tuple[tuple[str, ...], ...]) -> bytes:
    return (project(value, paths) or "").encode()


def _has(layout: Layout, rule: PermittedRows, record: StoredRecord) -> bool:
    key = record.key
    if layout.options.key_fields:
        key = json.loads(record.key)["id"].encode()
    if rule.key is not None:
        text = rule.key.text.encode()
        if not (key.startswith(text) if rule.key.is_prefix else bool(text) and key == text):
            return False
    if not rule.where:
        return True
    try:
        document = json.loads(record.value)
    except ValueError:
        return False
    return isinstance(document, dict) and all(_has_one(document, name, values) for name, values in rule.where)


def _has_one(document: dict[str, Any], name: str, values: tuple[Any, ...]) -> bool:
    found: Any = document
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if name == "tags":
        return isinstance(found, list) and any(each in found for each in values if isinstance(each, str))
    if name == "amount":
        numbers = [each for each in values if type(each) in {int, float}]
        # Decimals are texts in some formats: "7" is a number's value.
        return found is not None and type(found) is not bool and float(found) in numbers
    kind = bool if name == "done" else str
    return type(found) is kind and any(type(each) is kind and each == found for each in values)


def limits_fields(world: World) -> bool:
    """Return whether a rule shows some fields alone."""
    return any(rule.rows.fields is not None for rule in world.scope.rules)
