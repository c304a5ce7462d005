"""What `keylane check` finds of views in the first records of their topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from keylane.errors import ask_meant
from keylane_cli.check_config import CheckFinding, ValidConfig
from keylane_cli.survey.sample import TopicSample
from keylane_cli.survey.table_guess import UNITS, guess_times, json_object, paths_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane_spark.config.views import ViewConfig


def check_view(
    valid: ValidConfig, name: str, view: ViewConfig, sample: TopicSample
) -> Iterator[CheckFinding]:
    """Yield the fields that a view names and no record has."""
    documents = sample.documents
    values = [value for each in documents if (value := json_object(each)) is not None]
    if documents and not values:
        what = f"no first record of topic {view.topic!r} is a JSON object: a view reads its fields"
        yield CheckFinding("warning", valid.place("views", name, "topic"), what)
        return
    yield from _check_view_time(valid, name, view, documents)
    yield from _check_updates(valid, name, view, sample)
    paths = Counter(path for value in values for path in paths_of(value))
    wanted: list[tuple[tuple[str, ...], str | None]] = [(("key",), view.key), (("time",), view.time)]
    for column, each in view.columns.items():
        wanted += [(("columns", column), each.path or None), (("columns", column), each.by)]
    for field, path in wanted:
        if path is None or not values or path in paths:
            continue
        what = f"none of {len(values)} records has the field {path!r}{ask_meant(path, paths, quoted=True)}"
        yield CheckFinding("warning", valid.place("views", name, *field), what)


def _check_view_time(
    valid: ValidConfig, name: str, view: ViewConfig, documents: Sequence[bytes]
) -> Iterator[CheckFinding]:
    unit = guess_times(documents).guessed.get(view.time or "", "time")
    if unit != "time":
        what = f"the numbers in {view.time!r} look like {UNITS[unit]}: a view takes them for milliseconds"
        yield CheckFinding("warning", valid.place("views", name, "time"), what)


def _check_updates(
    valid: ValidConfig, name: str, view: ViewConfig, sample: TopicSample
) -> Iterator[CheckFinding]:
    """Yield that a view without windows counts a key again with each of its records."""
    is_of_log = not valid.config.definition(name).has_rows and view.of is None
    if not is_of_log or view.window or view.session or view.time:
        return
    keyed = sample.keyed.records
    again = len(keyed) - len(sample.keys)
    if again:
        what = f"{again} of {len(keyed)} records have a key that came before, and the view counts each record"
        instead = 'with of = "keys" it counts each key once, as its latest record is'
        yield CheckFinding("note", valid.place("views", name), f"{what}: {instead}")
