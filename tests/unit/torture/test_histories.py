"""A schedule's history can be replayed, and a schedule that fails is shortened to what makes it fail."""

from __future__ import annotations

import dataclasses

from tests.torture.configurations import (
    CONFIGURATIONS,
    PER_CONFIGURATION,
    SIDE_TOPICS,
    configuration_named,
    configuration_of,
)
from tests.torture.history import describe_step, read_history, shrink, write_history
from tests.torture.run import Outcome
from tests.torture.schedule import Event, Schedule, draw

from keylane_spark.config.config_file import load

STANDARD = configuration_named("standard")


def an_outcome(schedule: Schedule) -> Outcome:
    log = [{"began_s": number} for number in range(len(schedule.steps))]
    return Outcome(schedule, 1.5, ["a fault"], 1, 1, 1, log=log)


def test_a_history_has_the_schedule_that_it_is_of(tmp_path):
    schedule = draw(7, STANDARD.shapes, "lose-writes")
    file = write_history(tmp_path, "standard", an_outcome(schedule))
    assert read_history(file) == ("standard", schedule)
    assert '"a fault"' in file.read_text()


def test_a_repeated_schedule_has_keys_and_a_history_of_its_own(tmp_path):
    schedule = draw(7, STANDARD.shapes)
    again = dataclasses.replace(schedule, run=3)
    assert not set(schedule.keys["plain"]) & set(again.keys["plain"])
    files = {write_history(tmp_path, "standard", an_outcome(each)) for each in (schedule, again)}
    assert len(files) == 2


def test_a_schedule_is_shortened_to_the_steps_that_make_it_fail():
    schedule = draw(11, STANDARD.shapes, "zombie")
    kept = [step for step in schedule.steps if isinstance(step, Event)][:1]
    shorter = shrink(schedule, lambda candidate: kept[0] in candidate.steps, tries=200)
    assert list(shorter.steps) == kept


def test_a_schedule_is_shortened_within_a_number_of_tries_and_keeps_failing():
    schedule = draw(11, STANDARD.shapes)
    tried = []

    def fails(candidate: Schedule) -> bool:
        tried.append(candidate)
        return len(candidate.steps) > 3

    shorter = shrink(schedule, fails, tries=5)
    assert len(tried) == 5
    assert len({candidate.run for candidate in tried}) == 5
    assert 3 < len(shorter.steps) < len(schedule.steps)


def test_a_schedule_that_does_not_fail_again_stays_as_it_is():
    schedule = draw(11, STANDARD.shapes)
    assert shrink(schedule, lambda _: False) == schedule


def test_every_step_is_described_in_a_line():
    for step in draw(11, STANDARD.shapes, "zombie").steps:
        assert describe_step(step)
        assert "\n" not in describe_step(step)


def test_each_configuration_is_one_that_the_job_accepts_and_has_its_seeds(tmp_path):
    for configuration in CONFIGURATIONS:
        file = tmp_path / f"{configuration.name}.toml"
        file.write_text(configuration.toml())
        loaded = load(file)
        topics = {name: topic for name, topic in loaded.topics.items() if name not in SIDE_TOPICS}
        assert loaded.topics.keys() - topics.keys() == SIDE_TOPICS.keys()
        assert {shape.name: shape.options for shape in configuration.shapes} == {
            name: topic.options for name, topic in topics.items()
        }
        assert {shape.name: shape.stripes for shape in configuration.shapes} == {
            name: topic.stripes for name, topic in topics.items()
        }
        assert tuple(loaded.views) == (*configuration.views, *configuration.document_views)
    found = {configuration_of(seed).name for seed in range(0, 1000, PER_CONFIGURATION)}
    assert found == {configuration.name for configuration in CONFIGURATIONS}
    assert configuration_of(PER_CONFIGURATION) == configuration_of(2 * PER_CONFIGURATION - 1)
