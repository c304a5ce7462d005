"""The guards that make the promises true, and how each is removed."""

from __future__ import annotations

from dataclasses import dataclass

_LANES = "spark/keylane_spark/adapters/library/lanes.lua"
_WATERMARK = "spark/keylane_spark/adapters/library/watermark.lua"
_COLUMNS = "spark/keylane_spark/columns/chunks.py"
_FOLDING = "spark/keylane_spark/columns/fold.py"
_WRITES = "spark/keylane_spark/adapters/library/writes.lua"
_MERGE = "spark/keylane_spark/adapters/library/merge.lua"
_TRANSACTIONS = "spark/keylane_spark/adapters/chunk_transactions.py"
_STARTS = "spark/keylane_spark/adapters/lane.py"
_HEARTBEAT = "spark/keylane_spark/stream/heartbeat.py"
_FRESHNESS = "spark/keylane_spark/stream/freshness.py"
_STORE = "layers/keylane/python/keylane/query/store.py"
_LATEST = "layers/keylane/python/keylane/query/latest.py"
_ADMIN = "spark/keylane_spark/adapters/kafka_admin.py"
_CLAIMS = "spark/keylane_spark/adapters/claim_clock.py"
_LINEAGE = "spark/keylane_spark/generations/lineage.py"
_PLAN = "spark/keylane_spark/generations/plan.py"
_LAYOUTS = "layers/keylane/python/keylane/query/layouts.py"
_TASKS = "spark/keylane_spark/stream/tasks.py"
_BROKEN_CLUSTER = "tests/integration/redis/test_redis_failures.py"
_LOG_RANGES = "spark/keylane_spark/stream/log_ranges.py"
_STATE = "layers/keylane/python/keylane/adapters/redis/state.py"
_REPLICAS = "layers/keylane/python/keylane/adapters/redis/replicas.py"
_NODE = "infra/local/keylane_local/servers/redis_node.py"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces `old`, which occurs once in a file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """The project without one guard."""

    name: str
    replacements: tuple[Replacement, ...]
    focus: str | None = None
    topics: tuple[str, ...] = ()
    configuration: str = "standard"
    test: str = ""
    """A test that must notice what no schedule has."""
    is_rare: bool = False
    """Whether schedules would have to be many hundreds: then there is the test alone."""

    @property
    def arguments(self) -> list[str]:
        """What the torture is called with, or pytest."""
        if self.is_rare:
            return [self.test]
        focus = ["--focus", self.focus] if self.focus else []
        topics = ["--topics", *self.topics] if self.topics else []
        return ["--configuration", self.configuration, *topics, *focus]


MUTANTS = (
    # Records that are in the lane already are applied again, and the watermark moves to the chunk's end.
    Mutant(
        "offset guard",
        (
            Replacement(_LANES, "next_offset < to and 16 or #args + 1, next_offset)", "16, 0)"),
            Replacement(_LANES, "  elseif next_offset < to then\n    if args[7]", "  else\n    if args[7]"),
            Replacement(
                _LANES, "  if next_offset < to then\n    next_offset = to", "  do\n    next_offset = to"
            ),
            Replacement(_TRANSACTIONS, "<= watermark.next_offset < covered.end", "<= watermark.next_offset"),
        ),
        focus=None,
    ),
    # Any writer is accepted, whatever its epoch.
    Mutant(
        "epoch check",
        (
            Replacement(_WATERMARK, "if owner > epoch then", "if false then"),
            Replacement(_TRANSACTIONS, "if watermark.epoch != self._epoch or not ", "if not "),
        ),
        focus="zombie",
    ),
    # A chunk that begins beyond the lane's next offset is accepted: what a failover lost stays lost.
    Mutant(
        "repair",
        (
            Replacement(_LANES, "if next_offset < from then", "if false then"),
            Replacement(
                _TRANSACTIONS, "not covered.begin <= watermark.next_offset", "not watermark.next_offset"
            ),
        ),
        focus="lose-writes",
    ),
    # Within a chunk all sets come after all tombstones, as in a sink that sends deletes first.
    Mutant(
        "tombstone order",
        (
            Replacement(
                _COLUMNS,
                "return rows.where(repeats.following[start:end] >= end)",
                "pass",
            ),
            Replacement(
                _FOLDING,
                "    last: Mask = repeats.following == len(timestamps_ms)\n",
                "    by_kind = np.lexsort((~tombstones, repeats.codes))\n"
                "    last: Mask = np.zeros(len(tombstones), np.bool_)\n"
                "    ends = np.append(repeats.codes[by_kind][1:] != repeats.codes[by_kind][:-1], True)\n"
                "    last[by_kind[ends]] = True\n",
            ),
        ),
        focus=None,
    ),
    # A lane that failed over since it was opened takes strays, and is marked complete, though it lost some.
    Mutant(
        "lineage",
        (
            Replacement(
                _WATERMARK,
                "return redis.call('GET', key_of(watermark_key, tonumber(prefix), 'l')) ~= lineage()",
                "return false",
            ),
        ),
        focus="lose-writes",
        topics=("mixed",),
        test="tests/integration/lanes/test_strays.py::test_a_lane_that_has_failed_over_takes_no_stray_until_it_is_opened_again",
    ),
    # A lane that lacks strays which it was given does not get them again.
    Mutant(
        "taken and given",
        (Replacement(_STARTS, "            if has < to:\n", "            if False:\n"),),
        focus="lose-writes",
        topics=("mixed",),
    ),
    # A partition does not note which lanes it gave strays to.
    Mutant(
        "given",
        (Replacement(_LANES, "  in_slices('HSET', given, changed)\n", ""),),
        focus="lose-writes",
        topics=("mixed",),
    ),
    # Between partitions only the numbers of the partitions decide.
    Mutant(
        "order timestamps",
        (Replacement(_MERGE, "elseif order ~= entry.order then", "elseif false then"),),
        topics=("mixed",),
    ),
    # A tombstone leaves nothing: older records from other partitions bring the key back.
    Mutant(
        "tombstone markers",
        (
            Replacement(_MERGE, "elseif rules.marker_ms == '0' then", "elseif true then"),
            Replacement(_WRITES, "if marker_ms == '0' then", "if true then"),
        ),
        topics=("mixed",),
    ),
    # A lane that has strays writes its own records without comparing them.
    Mutant(
        "has strays",
        (
            Replacement(
                _LANES, "if args[9] == '1' or bit.band(flags, HAS_STRAYS) ~= 0 then", "if args[9] == '1' then"
            ),
            Replacement(_TRANSACTIONS, "if watermark.has_strays:", "if False:"),
        ),
        topics=("mixed",),
    ),
    # A lane of a topic with strays is marked as complete as its own partition is.
    Mutant(
        "slowest partition",
        (
            Replacement(
                _FRESHNESS,
                "min(bounds.get(topic, complete_ms), complete_ms)",
                "max(bounds.get(topic, complete_ms), complete_ms)",
            ),
        ),
        topics=("mixed",),
    ),
    # The heartbeat asks for the ends of the log before it looks at the clock.
    Mutant(
        "observe before ask",
        (
            Replacement(
                _HEARTBEAT,
                "before, seen_ms = self._query.positions, self._claim_clock.now_ms()",
                "before = self._query.positions",
            ),
            Replacement(
                _HEARTBEAT,
                "        if self._freshness.observe(seen_ms, ends, before):\n",
                "        seen_ms = self._claim_clock.now_ms()\n"
                "        if self._freshness.observe(seen_ms, ends, before):\n",
            ),
        ),
        focus="part-kafka",
    ),
    # Lanes are complete up to the last stable offset, which hides acknowledged records behind it.
    Mutant(
        "high watermark",
        (
            Replacement(
                _ADMIN, "LATEST, READ_UNCOMMITTED, OffsetQuery", "LATEST, READ_COMMITTED, OffsetQuery"
            ),
            Replacement(
                _ADMIN,
                "AdminSession.list_offsets, queries, READ_UNCOMMITTED",
                "AdminSession.list_offsets, queries, READ_COMMITTED",
            ),
        ),
        focus="hang-transaction",
        topics=("plain",),
    ),
    # The driver's clock alone says as of when a lane is complete.
    Mutant(
        "claim clock",
        (
            Replacement(_WATERMARK, "math.min(complete, time_ms())", "complete"),
            Replacement(_CLAIMS, "return min(wall_ms, math.floor", "return max(wall_ms, math.floor"),
        ),
        focus="clock-jump",
        topics=("plain",),
    ),
    # A read of several rounds claims the first watermark that it met.
    Mutant(
        "least of the rounds",
        (
            Replacement(
                _STORE,
                "self.by_lane[lane] = watermark if known is None else known.least(watermark)",
                "self.by_lane[lane] = watermark if known is None else known",
            ),
        ),
        focus="lose-writes",
        topics=("rich",),
        test="tests/unit/query/test_ranges.py::test_a_page_claims_no_more_than_its_oldest_round",
    ),
    # A replica that lacks an awaited stray may answer.
    Mutant(
        "primary only",
        (
            Replacement(
                _LATEST,
                "return _read(store, topic, key, deadline, terms, primary_only=True)",
                "return _read(store, topic, key, deadline, terms)",
            ),
        ),
        focus="stale-replica",
        topics=("mixed",),
        test="tests/unit/query/test_latest.py::test_a_stray_that_a_replica_lacks_is_read_from_the_primary",
    ),
    # A lane takes strays again that it had, and with them what was deleted since.
    Mutant(
        "strays that a lane has",
        (
            Replacement(
                _LANES,
                "  if before < to then\n    merge(keys[1], args, 2, 13, before)\n",
                "  merge(keys[1], args, 2, 13, 0)\n  if before < to then\n",
            ),
        ),
        focus="empty-shard",
        topics=("mixed",),
        configuration="forgetful",
        test="tests/integration/lanes/test_strays.py::test_strays_that_are_read_again_bring_back_nothing_that_was_deleted_since",
    ),
    # What a transaction relies on may change before it is carried out.
    Mutant(
        "watch",
        (
            Replacement(
                _TRANSACTIONS,
                'return encode_command(b"WATCH", key) +',
                'return encode_command(b"EXISTS", key) +',
            ),
        ),
        focus="zombie",
        topics=("plain",),
        test="tests/integration/lanes/test_chunk_transactions.py::test_a_newer_writer_between_two_chunks_fences_the_second",
    ),
    # A log that has grown past what was read before anyone looked is taken for the log that was read.
    Mutant(
        "leader epochs",
        (
            Replacement(
                _LINEAGE,
                "        for partition, found in self.ask(asked).items():\n            epoch",
                "        for partition, found in self.ask({}).items():\n            epoch",
            ),
        ),
        focus="lose-log",
        topics=("plain",),
    ),
    # Listeners of a topic that missed deletions are not sent what the log no longer says.
    Mutant(
        "incarnation of what missed deletions",
        (Replacement(_PLAN, "(wanted if is_rebuilt else kept).incarnation", "kept.incarnation"),),
        focus="miss-deletions",
        topics=("plain",),
        test="tests/unit/spark/test_generations_plan.py::test_a_state_that_may_hold_deleted_keys_is_built_again_in_its_own_layout_while_it_serves",
    ),
    # Readers know the layout in the part of the cluster that has the first of its copies, and no other.
    Mutant(
        "copies of layouts",
        (
            Replacement(
                _LAYOUTS,
                "for tag in (redis_keys.RECORD_TAG, *redis_keys.COPY_TAGS):",
                "for tag in (redis_keys.RECORD_TAG,):",
            ),
        ),
        focus="empty-keylane-shard",
        topics=("plain",),
    ),
    # A task takes the end of its rows for the end of its range, though Spark has ended them early.
    Mutant(
        "rows that end early",
        (Replacement(_TASKS, "batch_writer.finish_reached()", "batch_writer.finish(batch_writer.reached)"),),
        focus="cut-rows",
        topics=("timed",),
        configuration="timed",
    ),
    # The driver takes a batch for written though a task has not reported its ranges.
    Mutant(
        "ranges that nobody reports",
        (Replacement(_LOG_RANGES, "!= each.end:", "is not None and False:"),),
        # Spark fails a task whose worker it has cut off, so the torture can't lose the report alone.
        test="tests/integration/lanes/test_log_ranges.py::test_a_batch_of_which_a_task_ended_early_is_not_taken_for_written",
        is_rare=True,
    ),
    # A connection that asked a replica stays READONLY, and reads of a primary are answered by what it was.
    Mutant(
        "readwrite",
        (
            Replacement(
                _STATE,
                "return [*own, READONLY, *others, READWRITE] if others else own",
                "return [*own, READONLY, *others] if others else own",
            ),
            Replacement(_REPLICAS, "READONLY + packed + READWRITE, 3", "READONLY + packed, 2"),
        ),
        # Needs a failover and back while a slot migrates: seed 83161 was the one in 600.
        test=f"{_BROKEN_CLUSTER}::test_a_replica_that_was_asked_as_one_redirects_a_reader_that_takes_it_for_the_primary",
        is_rare=True,
    ),
    # Keys that no shard has are doubted for as long after a migration as those that one has.
    Mutant(
        "settled",
        (Replacement(_REPLICAS, "doubted_s = SETTLED_AFTER_S", "doubted_s = MIGRATING_FOR_S"),),
        test=f"{_BROKEN_CLUSTER}::test_replica_is_believed_again_soon_after_a_migration_that_the_reader_has_met",
        is_rare=True,
    ),
    # Without a majority of primaries no node answers reads.
    Mutant(
        "reads when down",
        (Replacement(_NODE, "cluster-allow-reads-when-down yes\n", ""),),
        focus="kill-two-primaries",
        topics=("plain",),
        test=f"{_BROKEN_CLUSTER}::test_two_primaries_that_are_lost_at_once_leave_every_shard_readable",
    ),
)
