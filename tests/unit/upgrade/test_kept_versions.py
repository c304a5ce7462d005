"""The versions that are kept have all that is stored or handed out, and their settings are still known."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import pytest
from tests.upgrade.record import SETTING
from tests.upgrade.versions import StoredKey, versions

from keylane.produce import message_codec
from keylane.state import codec
from keylane_local.tools import project_root
from keylane_spark.config.config_file import load

if TYPE_CHECKING:
    from tests.upgrade.versions import Version

ROOT = project_root()
VERSIONS = versions()
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.folder.name)
PATTERNS = {
    "{tag}": r"\{[0-9a-z]+\}",
    "{keylane}": r"\{keylane\}",
    "T": "[A-Za-z0-9._-]+",
    "~NAME": "~[A-Za-z0-9._-]+",
    "KIND": "(topic|caller)",
    "NAME": "[^}]+",
    "DIGEST": "[0-9a-f]{64}",
    "g": "[0-9]+",
    "<key>": ".+",
    "<window key>": ".+",
    "<row key>": ".+",
    "<lane>": r"[0-9]+\.[0-9]+",
    "<index>": "[0-9]+",
}
"""What stands in the protocol's names of keys."""


def names_of_keys() -> list[str]:
    """The names of keys in the tables of the protocol."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    section = page.partition("\n## Keys in Redis\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\{[^|]+) \|", section, re.MULTILINE)
    return [name for row in rows for name in re.findall("`([^`]+)`", row)]


def expression(name: str) -> str:
    """A regular expression for the keys of a name."""
    parts = re.split(r"(\{tag\}|\{keylane\}|~?[A-Z]+\b|\bg\b|<[a-z ]+>)", name)
    return "".join(PATTERNS.get(part, re.escape(part)) for part in parts)


def test_keys_of_every_kind_of_the_protocol_are_in_the_newest_version():
    keys = [each.key.decode("latin-1") for each in VERSIONS[-1].keys]
    names = names_of_keys()
    assert len(names) > 20
    lacking = [
        name for name in names if not any(re.fullmatch(expression(name), key, re.DOTALL) for key in keys)
    ]
    assert lacking == []


@each_version
def test_records_with_every_field_of_an_envelope_are_in_a_version(version: Version):
    flags = 0
    for each in version.keys:
        if re.match(rb"\{[0-9a-z]+\}:[^:~]+:[0-9]+:v:", each.key):
            flags |= each.content.encode("latin-1")[1]
    since = {"0-with-indexes": codec.FIELDS, "0-with-zstd": codec.FIELDS | codec.COMPRESSED}
    always = codec.STRAY | codec.TOMBSTONE | codec.ORDER | codec.HEADERS | codec.LEFT_IN_KAFKA
    assert flags == always | since.get(version.folder.name, 0)


@each_version
def test_messages_of_every_form_are_in_a_version(version: Version):
    queue = version.queue
    batches = [base64.b64decode(each["MessageBody"]) for each in queue["messages"]]
    assert {batch[1] for batch in batches} == {0, 1}  # here, and in the bucket
    decoded = [message_codec.decode(text.encode("latin-1")) for text in queue["objects"].values()]
    decoded += [message_codec.decode(batch) for batch in batches if not batch[1]]
    records = [record for batch in decoded for _, record in batch.records]
    assert {record.key is None for record in records} == {True, False}
    assert {record.value is None for record in records} == {True, False}
    assert any(record.partition is not None and record.headers for record in records)
    assert queue["dead"]


@each_version
def test_the_settings_of_a_version_are_still_known(version: Version):
    page = (ROOT / "docs" / "configuration" / "settings.md").read_text(encoding="utf-8")
    assert set(version.about["settings"]) - set(SETTING.findall(page)) == set()


@each_version
def test_the_keylane_toml_of_a_version_is_still_accepted(version: Version):
    config = load(version.folder / "keylane.toml")
    assert {f"{version.prefix}-{name}" for name in version.topics} == config.topics.keys()
    assert config.job.redis_patience_s == 12.5


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("string", "a\u00ff\u0000"),
        ("hash", {"a": "1"}),
        ("zset", [["member\u00fe", 1.0]]),
        ("list", ["first", "second"]),
    ],
)
def test_a_key_is_the_same_after_it_was_kept_as_text(kind: str, content: object):
    key = StoredKey(b"{tag}:\xff", kind, content, 5)
    assert StoredKey.from_json(key.to_json()) == key
