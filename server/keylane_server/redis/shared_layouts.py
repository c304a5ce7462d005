"""The topics' layouts for all requests: those that need one at the same time read it once."""

from collections import defaultdict
from collections.abc import Callable

from keylane.errors import StateUnavailable
from keylane.model.records import Layout
from keylane.ports import Clock, Deadline, State
from keylane.query.layouts import Layouts
from keylane_server.shared_calls import SharedCall


class SharedLayouts(Layouts):
    """See `Layouts`. An expired layout may be one that is being read; a stale one is read from now on."""

    def __init__(self, state: State, clock: Clock, ttl_s: float) -> None:
        super().__init__(state, clock, ttl_s)
        self._calls: defaultdict[str, SharedCall[Layout]] = defaultdict(SharedCall)

    def refresh(self, topic: str, deadline: Deadline) -> Layout:
        """See `Layouts.refresh`."""
        return self._shared(topic, deadline, self._calls[topic].join_next)

    def _replace_expired(self, topic: str, deadline: Deadline) -> Layout:
        return self._shared(topic, deadline, self._calls[topic].join)

    def _shared(
        self, topic: str, deadline: Deadline, join: Callable[[Callable[[], Layout], float], Layout]
    ) -> Layout:
        try:
            refresh = super().refresh
            return join(lambda: refresh(topic, deadline), deadline.remaining_s)
        except TimeoutError as error:
            raise StateUnavailable("Redis did not answer in time") from error
        finally:
            if self._calls[topic].is_idle:
                del self._calls[topic]
