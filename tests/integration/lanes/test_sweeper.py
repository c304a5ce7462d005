"""What the job removes in the background: what records list, what none names, what the config forgets."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import eventually
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.jobs import State

from keylane.errors import KeylaneError
from keylane.model.records import Layout
from keylane.state import redis_keys
from keylane.state.redis_keys import COPY_TAGS, RECORD_TAG
from keylane_spark.config.topics import Config
from keylane_spark.generations.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBERS = itertools.count()


class Scene:
    """Topics with state, and a sweeper for one run of their writer."""

    def __init__(self, nodes: str) -> None:
        self.nodes = nodes
        self.said: list[str] = []
        self._open: list[Any] = []

    def begin(self, topic: str, generation: int = 1) -> Run:
        run = self.closed(Run(self.nodes, topic))
        run.begin(Layout(topic, 3, generation=generation))
        run.write(Layout(topic, 3, generation=1), 20)
        return run

    def state(self, topic: str) -> State:
        return self.closed(State(self.nodes, topic))

    def sweep(self, run: Run, **job: Any) -> Sweeper:
        """Start a sweeper whose config has the topic of the run, as after an opening."""
        topics = {run.topic: {}} if not run.topic.startswith("~") else {"other": {}}
        config = Config.model_validate({"topics": topics, "job": job})
        sweeper = Sweeper(t.settings(self.nodes), run.ownership, t.CLOCK, config, self.said.append)
        sweeper.start()
        sweeper.look_at([run.topic])
        self._open.append(sweeper)
        return sweeper

    def hears(self, text: str) -> str:
        """The line with this text, once it is said."""
        eventually(lambda: any(text in line for line in self.said))
        return next(line for line in self.said if text in line)

    def closed(self, thing: Any) -> Any:
        self._open.insert(0, thing)
        return thing

    def close(self) -> None:
        for each in reversed(self._open):
            getattr(each, "stop", getattr(each, "close", None))()


@pytest.fixture
def scene(redis_cluster) -> Iterator[Scene]:
    made = Scene(redis_cluster)
    yield made
    made.close()


@pytest.fixture
def name() -> Callable[[], str]:
    return lambda: f"sweeper-{next(NUMBERS)}"


def test_generations_that_no_record_names_are_removed_after_a_start(redis_cluster, scene, name):
    topic = name()
    scene.begin(topic)
    with t.client(redis_cluster) as client:
        for tag in (RECORD_TAG, *COPY_TAGS):
            client.delete(redis_keys.layout_key(topic, tag), redis_keys.record_key(topic, tag))
    leftover = scene.begin(topic)
    # This one is in no record's list: it was left behind with another layout.
    leftover.ownership.note_removed(topic, 1)
    state = scene.state(topic)
    assert (state.layout.generation, state.record.remove) == (2, ())
    assert state.keys_of(1)
    scene.sweep(leftover)
    scene.hears(f"topic '{topic}': generation 1 is removed")
    eventually(lambda: state.record.remove == ())
    assert state.keys_of(1) == set()
    assert len([key for key in state.keys_of(2) if b":w:" in key]) == 3


def test_what_a_failover_brings_back_is_removed_again_when_the_lanes_are_opened_again(
    redis_cluster, scene, name
):
    topic = name()
    run = scene.begin(topic)
    run.begin(Layout(topic, 3), topic_id="created again")
    state = scene.state(topic)
    with t.client(redis_cluster) as client:
        before = {key: client.dump(key) for key in state.keys_of(1)}
        assert len(before) > 20
        sweeper = scene.sweep(run)
        scene.hears(f"topic '{topic}': generation 1 is removed")
        eventually(lambda: state.record.remove == ())
        for key, value in before.items():
            client.restore(key, 0, value)
    assert state.keys_of(1) == set(before)
    sweeper.look_at([topic])
    eventually(lambda: state.keys_of(1) == set())
    eventually(lambda: state.record.remove == ())
    assert len([key for key in state.keys_of(2) if b":w:" in key]) == 3


def test_a_topic_that_is_not_in_the_config_is_named_and_stays(scene, name):
    old, topic = name(), name()
    run = scene.begin(old)
    scene.sweep(scene.begin(topic))
    line = scene.hears(f"topic '{old}' is not in this job's config")
    assert line.endswith(f'[job] forget_topics = ["{old}"] removes it')
    state = scene.state(old)
    assert state.layout == Layout(old, 3, generation=1, incarnation=run.epoch)
    assert state.keys_of(1)


@pytest.mark.parametrize(("prefix", "setting"), [("", "forget_topics"), ("~", "forget_views")])
def test_what_the_config_forgets_is_removed_with_its_records(redis_cluster, scene, name, prefix, setting):
    old, topic = name(), name()
    scene.begin(prefix + old)
    state = scene.state(prefix + old)
    reader = scene.closed(state.reader())
    cached = scene.closed(state.reader())
    assert cached.value(b"key-1") == b"key-1"
    run = scene.begin(topic)
    scene.sweep(run, **{setting: [old]})
    scene.hears("is forgotten")
    assert state.keys_of(1) == set()
    assert state.layout is None
    assert state.record is None
    with t.client(redis_cluster) as client:
        for tag in (RECORD_TAG, *COPY_TAGS):
            assert not client.exists(redis_keys.layout_key(prefix + old, tag))
    for each in (reader, cached):
        with pytest.raises(KeylaneError):
            each.value(b"key-1")
    assert scene.state(topic).keys_of(1)
    scene.sweep(run, **{setting: [old]})
    scene.hears(f"has no state: it need not be listed in {setting}")


def test_a_topic_that_was_being_forgotten_is_begun_again_in_a_new_generation(scene, name):
    """The job ended in the middle, and the topic is back in the config: what is left must not be served."""
    topic = name()
    run = scene.begin(topic)
    assert run.ownership.begin_forgetting(topic, {1})
    begun = scene.closed(Run(scene.nodes, topic)).begin(Layout(topic, 3))
    assert begun.plan.serving.generation == 2
    assert scene.state(topic).record.remove == (1,)
