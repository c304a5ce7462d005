"""What readers expect of topics, as writers know it: the options of layouts that the job keeps in Redis."""

from keylane.errors import CorruptState, StateUnavailable, UnknownTopic
from keylane.model.records import Options
from keylane.ports import Clock, Deadline, LayoutReader

ANYTHING = Options()
"""Of a topic whose layout is not known."""
TIMEOUT_MS = 500
"""How long a write may wait for a layout."""
AGAIN_S = 10
"""After this time a layout that was not found is looked for again."""
MOST_TOPICS = 1_000


class TopicFormats:
    """The options of topics' layouts, kept for a while.

    Where Redis has no layout or does not answer, what was known before counts, or ANYTHING: writing does not
    depend on the state.
    """

    def __init__(self, layouts: LayoutReader, clock: Clock) -> None:
        self._layouts = layouts
        self._clock = clock
        self._earlier: dict[str, tuple[float, Options]] = {}

    def options_of(self, topic: str) -> Options:
        """Return a topic's options."""
        layout = self._layouts.known(topic)
        if layout is not None:
            return layout.options
        now_s = self._clock.monotonic_s()
        until_s, options = self._earlier.get(topic, (0.0, ANYTHING))
        if now_s < until_s:
            return options
        try:
            options = self._layouts.get(topic, Deadline.after_ms(TIMEOUT_MS, self._clock)).options
            until_s = 0.0
        except UnknownTopic:
            until_s, options = now_s + AGAIN_S, ANYTHING
        except (StateUnavailable, CorruptState):
            until_s = now_s + AGAIN_S
        if len(self._earlier) >= MOST_TOPICS:
            self._earlier.clear()
        self._earlier[topic] = (until_s, options)
        return options
