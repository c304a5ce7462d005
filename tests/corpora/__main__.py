"""`python -m tests.corpora [CORPUS ...]`: public schemas by us and by other libraries, and where they differ.

Prints what is not in known.json, and what is there and is gone; exit code 1 for either. `--keep` writes it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.corpora import avro_schemas, json_schemas, protos

if TYPE_CHECKING:
    from collections.abc import Callable

CORPORA: dict[str, Callable[[], tuple[int, dict[str, str]]]] = {
    "avro": avro_schemas.compare,
    "json": json_schemas.compare,
    "proto": protos.compare,
}
KNOWN = Path(__file__).with_name("known.json")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpora", description=__doc__)
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help=", ".join(CORPORA))
    parser.add_argument("--keep", action="store_true", help="write what differs into known.json")
    given = parser.parse_args(arguments)
    known: dict[str, dict[str, str]] = json.loads(KNOWN.read_text(encoding="utf-8"))
    changed = 0
    for name in given.corpora or CORPORA:
        begun_s = time.monotonic()
        count, differing = CORPORA[name]()
        before = known.get(name, {})
        print(f"{name}: {len(differing)} of {count} differ, {time.monotonic() - begun_s:.0f} s", flush=True)
        for file in sorted(differing.keys() | before.keys()):
            if differing.get(file) != before.get(file):
                changed += 1
                print(
                    f"  {file}: {differing.get(file, 'as the other now')} (known: {before.get(file, 'no')})"
                )
        known[name] = differing
    if given.keep:
        KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
