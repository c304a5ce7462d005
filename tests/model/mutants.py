"""`python -m tests.model.mutants`: the model must detect the absence of each guard.

For each mutant the checkout is copied without one guard, as for the torture, and the model visits there what
the integration tests visit of one space. The steps that break a promise are printed. Exit code 1 when a
mutant survives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.model.__main__ import BROKEN
from tests.torture import guards
from tests.torture.guards import Mutant, Replacement
from tests.torture.mutants import environment_of, make

_LIBRARY = "spark/keylane_spark/lanes/library/"
_LANES, _MERGE, _FIELDS = (f"{_LIBRARY}{name}.lua" for name in ("lanes", "merge", "fields"))
_SCAN = "layers/keylane/python/keylane/query/field_scan.py"
_CONDITIONS = "layers/keylane/python/keylane/query/conditions.py"
_OPEN = "spark/keylane_spark/serving/open_topics.py"
_OPEN_LANES = "spark/keylane_spark/serving/open_lanes.py"
_SWITCH = "spark/keylane_spark/serving/switch.py"
_HEARTBEAT = "spark/keylane_spark/stream/heartbeat.py"
_ORDERED = "spark/keylane_spark/rows/ordered_writes.py"
_TRANSACTIONS = "spark/keylane_spark/lanes/chunk_transactions.py"


@dataclass(frozen=True, slots=True)
class SpaceMutant(Mutant):
    """The project without one guard, and the space in which the model notices that."""

    space: str = "plain"


def _mutant(name: str, path: str, old: str, new: str, space: str = "plain") -> SpaceMutant:
    return SpaceMutant(name, (Replacement(path, old, new),), space=space)


def _of_torture(name: str, space: str = "plain", named: str = "") -> SpaceMutant:
    """The torture's mutant of this name; `named`: its name here."""
    found = next(mutant for mutant in guards.MUTANTS if mutant.name == name)
    return SpaceMutant(named or name, found.replacements, space=space)


MUTANTS = (
    _of_torture("offset guard"),
    _of_torture("epoch check"),
    _of_torture("repair"),
    _of_torture("lineage"),
    _of_torture("taken and given"),
    _of_torture("given"),
    _of_torture("order timestamps"),
    _of_torture("tombstone markers"),
    _of_torture("has strays"),
    _of_torture("strays that a lane has"),
    _of_torture("watch"),
    _mutant(
        "gaps: a call that begins beyond the lane's next offset is carried out",
        _LANES,
        "if next_offset < from then",
        "if false then",
    ),
    _mutant(
        "gaps of a transaction: a chunk that begins beyond the lane's next offset is applied",
        _TRANSACTIONS,
        "not covered.begin <= watermark.next_offset < covered.end",
        "not watermark.next_offset < covered.end",
    ),
    _mutant(
        "offsets of a transaction: a chunk that the lane has is applied again",
        _TRANSACTIONS,
        "<= watermark.next_offset < covered.end",
        "<= watermark.next_offset",
    ),
    _mutant(
        "epoch of a transaction: any writer's chunk is applied",
        _TRANSACTIONS,
        "if watermark.epoch != self._epoch or not ",
        "if not ",
    ),
    _mutant(
        "strays under a transaction: what is there is not compared",
        _TRANSACTIONS,
        "if watermark.has_strays:",
        "if False:",
    ),
    _mutant(
        "connection of a transaction: what another connection watches is relied on",
        _TRANSACTIONS,
        " and watched.connection == self._cluster.connection_number(node)",
        "",
    ),
    _mutant(
        "order: of records of two partitions the one that is read last wins",
        _MERGE,
        "return order > entry.order",
        "return true",
    ),
    _mutant(
        "lost strays: no partition is read again for a lane that has lost them",
        _OPEN_LANES,
        "in lost_strays(starts):",
        "in lost_strays({}):",
    ),
    _mutant(
        "slowest partition: a lane of a topic with strays waits for its own partition alone",
        _HEARTBEAT,
        "complete_ms = min(complete_ms, of_topic_ms[topic])",
        "pass",
    ),
    SpaceMutant(
        "index: a deleted key stays in it",
        (
            Replacement(_MERGE, "  in_parts('ZREM', rules.index, removed)\n", ""),
            Replacement(_ORDERED, "        others += removals\n", ""),
            Replacement(_ORDERED, "len(deleted) + len(removals)", "len(deleted)"),
        ),
        space="index",
    ),
    _mutant(
        "index of a transaction: a new key is not in it",
        _ORDERED,
        '    others += _index_commands(b"ZADD", lane.index_keys, sets.keys, _SCORE)\n',
        "",
        "index",
    ),
    _mutant(
        "replaced members: what a record no longer has stays in its index of fields",
        _FIELDS,
        "    in_parts('ZREM', field_parts(number, rules), members)\n",
        "",
        "fields",
    ),
    _mutant(
        "expired members: what has expired stays in indexes of fields",
        _FIELDS,
        "local before = not (entry and entry.payload) and fields_of_expired(name, rules) or ''",
        "local before = ''",
        "expiry",
    ),
    _mutant(
        "entries of the expired: a key that is written again after it has expired was in no index",
        _MERGE,
        "there and there_fields or fields_of_expired(string.sub(key, rules.prefix + 1), rules)",
        "there and there_fields or ''",
        "expiry",
    ),
    _mutant(
        "entries before: nobody knows which members a record had",
        _MERGE,
        "there and there_fields or fields_of_expired(string.sub(key, rules.prefix + 1), rules)",
        "''",
        "fields",
    ),
    _mutant(
        "members of strays: a record of another partition is in no index of fields",
        "spark/keylane_spark/stream/partition_chunks.py",
        "(encoded,) = encode_chunks([indexed], [delivery], source)",
        "(encoded,) = encode_chunks([indexed if source is None else folded], [delivery], source)",
        "fields",
    ),
    _mutant(
        "members of open chunks: what is encoded with other lanes is in no index of fields",
        "spark/keylane_spark/stream/partition_chunks.py",
        "found.append((chunk, folded.with_fields(chunk.lane.options, decode)))",
        "found.append((chunk, folded))",
        "fields",
    ),
    _of_torture("repair", "fields", "repaired members: what a lane has lost is not read again"),
    _mutant(
        "order of lanes: rows of several lanes are merged in ascending order alone",
        _SCAN,
        "reverse=not self._is_descending)",
        "reverse=True)",
        "fields",
    ),
    _mutant(
        "cursor: a page begins with the row that the one before ended with",
        _CONDITIONS,
        'high = b"(" + self.prefix + after',
        'high = b"[" + self.prefix + after',
        "fields",
    ),
    _mutant(
        "jump: a lane whose next offset the log has lost is not marked",
        _LANES,
        "flags, next_offset = bit.bor(flags, INCOMPLETE), oldest",
        "next_offset = oldest",
        "retention",
    ),
    _mutant(
        "began: a lane that is filled again from what retention has left is not marked",
        _OPEN,
        "if first[partition] > began[partition]",
        "if False",
        "retention",
    ),
    _mutant(
        "marks taken back: a lane that has lost what says that it may hold deleted keys is complete",
        _HEARTBEAT,
        "is_doubted = topic in strays or (topic, partition) in doubted",
        "is_doubted = topic in strays",
        "compaction",
    ),
    _mutant(
        "spread: of a topic with strays only the lane that jumped is marked",
        _OPEN_LANES,
        "    writer.mark_incomplete(lane for lane in lanes if not starts[lane].incomplete)\n",
        "",
        "retention",
    ),
    _mutant(
        "missed deletions: nobody looks when a lane was complete",
        "spark/keylane_spark/generations/deletions.py",
        "if kept_ms is not None and self.now_ms - since_ms > self._bound_ms(kept_ms):",
        "if False:",
        "compaction",
    ),
    _mutant(
        "switch in time: readers are switched before the next generation has what the old one has",
        _SWITCH,
        "while not self._covers(building, reached):",
        "while False:",
        "growth",
    ),
    _mutant(
        "superseded: the old generation's lanes are not marked",
        _SWITCH,
        "                lanes.supersede(lanes_of(writer.layouts[topic]))\n",
        "                pass\n",
        "growth",
    ),
    _mutant(
        "stale layouts: readers do not ask for the layout again",
        "layers/keylane/python/keylane/query/store.py",
        "    if reading.watermarks.is_stale:\n        newer",
        "    if False:\n        newer",
        "growth",
    ),
)


def survives(mutant: SpaceMutant) -> bool:
    """Explore the mutant; returns whether no promise was broken."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        checkout = Path(temporary) / "checkout"
        make(mutant, checkout)
        ended = subprocess.run(
            [sys.executable, "-m", "tests.model", "--gate", "--spaces", mutant.space],
            cwd=checkout,
            env=environment_of(checkout),
            check=False,
        )
        if ended.returncode not in (0, BROKEN):
            raise SystemExit(f"without the {mutant.name}: the model ended with {ended.returncode}, see above")
        return ended.returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """Explore each mutant; the exit code is 1 where one survives."""
    parser = argparse.ArgumentParser(prog="tests.model.mutants", description=__doc__)
    names = [mutant.name.partition(":")[0] for mutant in MUTANTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    given = parser.parse_args(arguments)
    alive = []
    for mutant in MUTANTS:
        if mutant.name.partition(":")[0] in given.only:
            print(f"{mutant.name} ({mutant.space})", flush=True)
            alive += [mutant.name] if survives(mutant) else []
    print(f"survived: {alive or 'none'}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
