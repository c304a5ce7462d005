"""Pages: ranges of keys, histories and windows, with their cursors to the end. Streams, which have none."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.reads import BYTES
from tests.contract.hosts.topics import EXAMPLES, NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Names

PAGES = (
    *("/topics/hosts-bookings/keys?limit=7", "/topics/hosts-bookings/keys?limit=4&prefix=ann%7C"),
    *("/topics/hosts-bookings/keys?limit=5&from=ann%7C05&to=bob%7C04", "/topics/hosts-trips/keys?limit=9"),
    *("/topics/hosts-bookings/keys?limit=6&keys_only=true", "/topics/hosts-striped/keys?limit=11&prefix=1"),
    *(
        "/topics/hosts-bookings/keys?limit=6&as_of=2023-11-14T22:14:20Z",
        "/topics/hosts-registered/keys?limit=3",
    ),
    *("/topics/hosts-bookings/keys/ann%7C07/history?limit=2", "/topics/hosts-text/keys?limit=5&fields=a"),
    *("/topics/hosts-bookings/keys?limit=20&prefix=%FFeve&fields=of.n", "/topics/hosts-headers/keys?limit=2"),
    *(
        "/topics/hosts-bookings/keys/bob%7C12/history?limit=1",
        "/topics/hosts-trips/keys?limit=4&prefix=bob%7C",
    ),
    *(
        "/topics/hosts-big/keys?limit=1",
        "/views/hosts-puts/keys?limit=4",
        "/views/hosts-puts/keys/N14228?limit=2",
    ),
    *("/views/hosts-puts/keys?limit=3&prefix=N1&final=true", "/views/hosts-hops/keys?limit=1"),
    "/views/hosts-totals/keys?limit=2",
)
FOLLOWED = 3
"""How many pages behind the first one are read; behind the last page there is the last page again."""
LISTED = (
    *(
        "bookings",
        "trips",
        "striped",
        "text",
        "json",
        "bytes",
        "registered",
        "headers",
        "left",
        "ttl",
        "aged",
    ),
    "once",
)
RANGES = (
    *(
        "",
        "?keys_only=true",
        "?limit=1",
        "?fields=a",
        "?as_of=2023-11-14T22:13:40Z",
        "?from=b&to=c",
        "?to=N2",
    ),
)
UNLISTED = ("flights", "big", "stale", "begun", "four", "hidden", "puts", "nowhere")
COUNTS = ("", "?partial=true", "?max_age_ms=0", "?max_age_ms=600000", "?fields=a", "?prefix=a", "?limit=1")
SPANS = (
    "",
    "?from=2023-11-14T22:13:40Z",
    "?to=1700000090000",
    "?from=1700000060000&to=1700000120000",
    "?limit=1",
)
MOMENTS = ("1700000000000", "1700000050000", "2023-11-14T22:15:00Z", "2100-01-01")
VIEWS = ("puts", "totals", "hops", "visits", "filling", "opened", "planned", "nowhere")
WINDOWS = (
    *("from=2023-11-15", "to=2023-11-16", "from=1700006400000&to=1700179200000"),
    "from=2023-11-16&to=2023-11-15",
)
KEYS_OF_VIEWS = (
    *("prefix=N", "key_from=N&key_to=O", "key_from=O&key_to=N", "prefix=N&key_from=A"),
    "prefix=AP8&key_format=base64",
)
CONDITIONS = (
    "n=14..",
    "n=..%3C14&m=1",
    "n=x",
    "nn=1",
    "m=1&order=-n&limit=3",
    "m=1&count=true",
    ".n=16",
    "n=1*",
)
FEED = (("0:3,1:0", 3), ("0:0,1:0", 3), ("0:5", 3), ("1:1", 3), ("0:99,1:99", 2), ("7:1", 2))
"""Where a listener of a topic is, and how many events come first."""


def cursor_cases(names: Names) -> Iterator[Case]:
    """Pages with those that follow, and cursors of other bounds, of another topic, of other sizes."""
    for target in PAGES:
        first = Case("GET", target)
        yield first
        title = first.describe(names.tag)
        for number in range(FOLLOWED):
            following = Case("GET", target, cursor_of=title, label=f"GET {target}, page {number + 2}")
            yield following
            title = following.label
        path, _, query = target.partition("?")
        for other in (f"{path}?{query}&prefix=z", f"{path}?limit=2", f"/topics/hosts-bookings/keys?{query}"):
            label = f"GET {other} [cursor of {target}]"
            yield Case("GET", other, cursor_of=first.describe(names.tag), label=label)


def range_cases(names: Names) -> Iterator[Case]:
    """Ranges of topics of all kinds, and bounds that exclude each other."""
    for topic in LISTED:
        for query in RANGES:
            yield Case("GET", f"/topics/hosts-{topic}/keys{query}")
            yield Case("GET", f"/topics/hosts-{topic}/keys{query}", BYTES)
    for query in ("from=b&to=a", "prefix=a&from=b", "from=2&to=1", "prefix=a&to=b", "from=a&to=a"):
        for path in (
            "topics/hosts-bookings/keys",
            "topics/hosts-bookings/keys/a/history",
            "views/hosts-puts/keys",
        ):
            yield Case("GET", f"/{path}?{query}")


def count_cases(names: Names) -> Iterator[Case]:
    """Counts of topics of all kinds: indexed, without an index, and ones that are being built or unknown."""
    for topic in (*LISTED, *UNLISTED):
        for query in COUNTS:
            yield Case("GET", f"/topics/hosts-{topic}/count{query}")
            yield Case("HEAD", f"/topics/hosts-{topic}/count{query}")


def history_cases(names: Names) -> Iterator[Case]:
    """Histories, and records as of times within them and before."""
    for name in NAMES[::3]:
        path = f"/topics/hosts-bookings/keys/{quote(name, safe='')}"
        yield Case("GET", path)
        for query in SPANS:
            yield Case("GET", f"{path}/history{query}")
        for moment in MOMENTS:
            for form in ("", "&envelope=true", "&fields=turn"):
                yield Case("GET", f"{path}?as_of={moment}{form}")
    for key in EXAMPLES:
        yield Case("GET", f"/topics/hosts-aged/keys/{quote(key)}/history")
        yield Case("GET", f"/topics/hosts-aged/keys/{quote(key)}?as_of=1700000000000")


def view_cases(names: Names) -> Iterator[Case]:
    """Views of all kinds, and their windows."""
    for view in VIEWS:
        yield Case("GET", f"/views/hosts-{view}")
        yield Case("HEAD", f"/views/hosts-{view}")
        for query in (
            "",
            "?partial=true",
            "?final=true",
            "?max_age_ms=0",
            "?final=true&partial=true&limit=2",
        ):
            yield Case("GET", f"/views/hosts-{view}/keys{query}")
            for key in ("N14228", "nothing", "absent"):
                yield Case("GET", f"/views/hosts-{view}/keys/{key}{query}")
    for query in WINDOWS:
        yield Case("GET", f"/views/hosts-puts/keys?{query}")
        yield Case("GET", f"/views/hosts-puts/keys/N14228?{query}")
    for query in KEYS_OF_VIEWS:
        yield Case("GET", f"/views/hosts-puts/keys?{query}")


def stream_cases(names: Names) -> Iterator[Case]:
    """Streams of changes: what comes first. On Lambda there are none."""
    key, topic = "/topics/hosts-flights/keys/N14228/changes", "/topics/hosts-feed/changes"
    for query in ("", "?fields=dest", "?fields=nothing", "?key_format=base64"):
        yield Case("GET", f"{key}{query}", (("Accept", "text/event-stream"),), events=2)
    for path in ("flights/keys/absent", "registered/keys/r-avro", "left/keys/large"):
        yield Case("GET", f"/topics/hosts-{path}/changes", events=2)
    yield Case("GET", key, (("Last-Event-ID", "2:0"),), events=1)
    yield Case("GET", key, (("Last-Event-ID", "2:1"),), events=2)
    for since, events in FEED:
        yield Case("GET", topic, (("Last-Event-ID", since),), events=events)
        yield Case("GET", f"{topic}?fields=n", (("Last-Event-ID", since),), events=events)
    for query in ("prefix=f01", "prefix=ZjA&key_format=base64", "partial=true", "prefix=zz"):
        yield Case("GET", f"{topic}?{query}", events=2)
    yield Case("GET", f"{topic}?prefix=f01", (("Last-Event-ID", "0:3,1:0"),), events=3)
    for query in CONDITIONS:
        yield Case("GET", f"{topic}?{query}", (("Last-Event-ID", "0:3,1:0"),), events=3)
        for method in ("GET", "HEAD"):
            yield Case(method, f"/topics/hosts-feed/find?{query}")
    yield Case("GET", "/topics/hosts-flights/changes?dest=SFO", events=2)
    yield Case("GET", "/topics/hosts-flights/changes?fieds=dest", events=2)
    snapshot = "/topics/hosts-feed/snapshot"
    for query in (
        "",
        "?fields=n",
        "?prefix=f01",
        "?prefix=ZjA&key_format=base64",
        "?partial=true",
        "?n=1..3",
    ):
        yield Case("GET", f"{snapshot}{query}")
    for query in ("?cursor=AAAAAAAAAAAAAAAAAAAAAAAA", "?limit=3", "?prefix=%FF"):
        yield Case("GET", f"{snapshot}{query}")
