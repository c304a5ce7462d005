"""Beside what users would pick instead, where it is installed: see tests/bench/PEERS.md.

`ingest`: the job and a Redis sink connector in Kafka Connect read the same backlogs of one topic, and write
them into one cluster of 3 primaries. Both are warm. They take turns, the order changes from round to round,
and the one that is not measured is suspended (SIGSTOP). The clock runs until every lane's watermark, or the
connector's committed offset, has reached the end of its partition.

`push`: `keylane serve` and kprf write pushes of one record of 4 KiB into one topic of one broker, with
acks=all. Once they wait for Kafka before they answer (`wait_for_send`), and once they need not. In the second
case `keylane serve` is measured twice: without a write-ahead log, where it waits for Kafka all the same, and
with one, in the queue of a server that speaks SQS.

`lookup`: `keylane serve` over Redis and a Kafka Streams application with its own store serve GETs of random
keys; both have the same keys and values.

The load of the last two comes from wrk, and the servers take turns in an order that changes. Figures are
medians of all rounds. A peer that fails is reported, and the others are measured.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from typing import TYPE_CHECKING

import peer_ingest
import peer_lookup
import peer_push
from harness import add_settings, parse

from keylane_local.errors import PartFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = {"ingest": peer_ingest, "push": peer_push, "lookup": peer_lookup}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--records", type=int, default=1_000_000, help="ingest: in each round")
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="ingest: records before")
    parser.add_argument("--value-bytes", type=int, default=170, help="ingest")
    parser.add_argument("--seconds", type=int, default=10, help="push, lookup: of each load")
    parser.add_argument("--workers", type=int, default=1, help="push, lookup: processes of `keylane serve`")
    parser.add_argument("--push-connections", type=int, default=256)
    parser.add_argument("--keys", type=int, default=20_000, help="lookup")
    parser.add_argument("--lookup-bytes", type=int, default=184, help="lookup: of a value")
    parser.add_argument("--connections", type=int, default=48, help="lookup")
    add_settings(parser)
    chosen = parse(parser, arguments)
    failed = [name for name in chosen.only if not succeeds(name, chosen)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def succeeds(name: str, chosen: argparse.Namespace) -> bool:
    """Measure a part, or say why its peer cannot be; return whether nothing failed."""
    if why := PARTS[name].why_not():
        print(f"{name}: {why}")
        return True
    try:
        PARTS[name].measure(chosen)
    except SystemExit as error:  # what the benchmarks end with
        print(f"{name}: {error}", file=sys.stderr)
        return False
    except PartFailed as error:
        print(f"{name}: {error}", error.tail, sep="\n", file=sys.stderr)
        return False
    except Exception:  # noqa: BLE001 - whatever it is, the others are measured
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    main()
