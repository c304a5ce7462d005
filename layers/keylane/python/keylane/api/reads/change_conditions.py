"""Which changes a listener with conditions on fields is sent.

A record that meets the conditions is sent, whether it met them before or not. One that does not meet them is
sent as `left`, and an absent key as `absent`, unless the listener can't have the key: it was sent that
before, and nothing came between.
"""

from collections.abc import Callable, Collection, Sequence

from keylane.api.http.unknown_parameters import refuse_unknown
from keylane.errors import BadRequest, NoFields
from keylane.model.changes import GAP, LEFT, ChangeEvent
from keylane.model.records import Answer
from keylane.ports import Deadline
from keylane.query.conditions import Asked, question_of
from keylane.query.decoding import ValueDecoder
from keylane.query.store import ReadTerms, Store

MOST_OUTSIDE = 10_000
"""Keys that are remembered for each listener: up to 1 KiB each, some 50 bytes as a rule."""


def check_conditions(
    store: Store, topic: str, asked: Sequence[Asked], names: Collection[str], terms: ReadTerms
) -> None:
    """Raise BadRequest for what is neither a field of the topic nor a parameter, or no value of the field.

    `names`: the parameters.

    Raises NoFields for a topic without fields, UnknownTopic, StateUnavailable.
    """
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    try:
        question_of(store.layouts.get(topic, deadline), asked, None)
    except (BadRequest, NoFields):
        # The layout at hand may be older than the fields.
        layout = store.layouts.refresh(topic, deadline)
        if not layout.options.fields:
            refuse_unknown([each.name for each in asked], names)
        question_of(layout, asked, None)


class ConditionedChanges:
    """Chooses the events of one listener. `decoder`: opens what decodes values, for texts that are cut."""

    def __init__(self, asked: Sequence[Asked], decoder: Callable[[], ValueDecoder]) -> None:
        self._asked = tuple(asked)
        self._decoder = decoder
        self._outside: dict[bytes, None] = {}

    def choose(self, event: ChangeEvent) -> ChangeEvent | None:
        """See `model.changes.Choose`. Raises BadRequest, NoFields where the topic has other fields now."""
        if event.answer is None:
            if event.name == GAP:
                self._outside.clear()
            return event
        if self._is_met(event.answer):
            self._outside.pop(event.key, None)
            return event
        was_outside = event.key in self._outside
        self._outside.pop(event.key, None)
        self._outside[event.key] = None
        if len(self._outside) > MOST_OUTSIDE:
            del self._outside[next(iter(self._outside))]
        if was_outside and event.is_only_change:
            return None
        return event if event.answer.record is None else event._replace(name=LEFT)

    def _is_met(self, answer: Answer) -> bool:
        layout, _, record, _ = answer
        if record is None:
            return False
        question = question_of(layout, self._asked, None)
        return question.is_met_by(record, lambda: self._decoder().decode_or_explain(layout, record))
