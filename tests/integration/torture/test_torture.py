"""Each kind of trouble once, three in a schedule; `make torture` runs hundreds of random ones.

`make test` has one of them; `make long` has all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.__main__ import describe
from tests.torture.configurations import STANDARD
from tests.torture.history import write_history
from tests.torture.run import Tormentor
from tests.torture.schedule import EVENTS, draw
from tests.torture.stack import running_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 1000
AT_ONCE = 3
SCHEDULES = [list(EVENTS)[at : at + AT_ONCE] for at in range(0, len(EVENTS), AT_ONCE)]
IN_TURN = sorted(SCHEDULES, key=lambda events: "switch-layout" not in events)
"""The generation that it builds takes all records that the others have written before it."""
COMMON = "lose-writes"
"""The schedule with it is in `make test`: a job stands, its checkpoint and a primary's newest writes go."""


@pytest.fixture(scope="module")
def tormentor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tormentor]:
    with running_stack(tmp_path_factory.mktemp("torture"), STANDARD) as stack:
        running = Tormentor.of(stack, SEED)
        yield running
        running.close()


@pytest.mark.parametrize(
    "events",
    [pytest.param(events, marks=[] if COMMON in events else [pytest.mark.long]) for events in IN_TURN],
    ids="+".join,
)
def test_the_state_is_the_fold_of_the_log_and_no_reader_saw_anything_else(tormentor, events, tmp_path):
    outcome = tormentor.run(draw(SEED + SCHEDULES.index(events), STANDARD.shapes, only=events))
    write_history(tmp_path, STANDARD.name, outcome)
    assert not outcome.faults, describe(outcome, tmp_path)
    assert outcome.reads
    assert outcome.waits


def test_what_earlier_trouble_left_is_still_the_fold_of_the_log(tormentor):
    assert tormentor.check_all() == []
