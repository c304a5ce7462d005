"""Which changes of a topic a listener is sent to whom rules of the access policy apply.

All listeners of a topic share what is read of it; each is sent what its scope permits. Of a record that may
not be seen now the new value says nothing of the old one, and the state has that no longer. So a listener
whose rules compare fields has a set of the keys that it may have: those that its scope permits when it
begins, and those that it was sent. A record of such a key that may not be seen any more is sent as `left`,
without its value; one of any other key is not sent at all.

Such a listener can't go on where it was: whether it had a key then is not known any more. It is sent a `gap`
instead, and reads its keys again. So is one to whom other rules applied: its ids have another incarnation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keylane.api.reads.changes import ChangesRequest, parse_topic_id, render_change
from keylane.api.reads.envelope import Envelopes
from keylane.errors import ScopeTooWide
from keylane.model.changes import ABSENT, GAP, LEFT, ChangeEvent
from keylane.ports import Deadline
from keylane.query.ranges import read_range
from keylane.query.span import RangeScan, Span
from keylane.query.store import begin_reading
from keylane.state.field_index import indexes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.changes import ChangeSource, Choose
    from keylane.query.changes import ChangeReader
    from keylane.query.row_scopes import RowScopes, TopicScope

MOST_FOLLOWED = 10_000
"""Keys of a listener whose rules compare fields: up to 1 KiB each, some 50 bytes as a rule."""
PAGE_KEYS = 1_000


@dataclass(slots=True)
class ScopedChanges:
    """Chooses the events of one listener. `reader`: within its scope.

    `conditioned`: chooses among the events of permitted records; None without conditions.
    """

    reader: ChangeReader
    request: ChangesRequest
    scopes: RowScopes
    conditioned: Choose | None = None
    _inside: set[bytes] = field(default_factory=set)
    _has_gap: bool = False
    _scope: TopicScope | None = None

    def open(
        self,
        open_stream: Callable[..., Any],
        source: ChangeSource,
        is_wanted: Callable[[bytes], bool],
    ) -> Any:
        """Open the stream. Raises as `ChangeSource.start`, OutsideScope, ScopeTooWide."""
        scope, since = self._begin(), self.request.since
        self._scope = scope
        if since is not None and (scope.judges_rows or since.incarnation != scope.incarnation):
            self._has_gap, since = True, None
        if since is not None:
            since = since._replace(incarnation=scope.layout.incarnation)
        stream = open_stream(source, since, is_wanted, self.choose)
        # After the source has started: what enters later is sent, what is there now is in the set.
        try:
            if scope.judges_rows:
                self._load()
        except BaseException:
            stream.close()
            raise
        return stream

    def choose(self, event: ChangeEvent) -> ChangeEvent | None:
        """See `model.changes.Choose`. Raises OutsideScope, ScopeTooWide; BadRequest, NoFields."""
        answer = event.answer
        if answer is None:
            return self._pass_on(self._with_gap(self._with_own_id(event)))
        scope = self._scope = self.scopes.of(answer.layout)
        if answer.record is not None and scope.permits_record(answer.record):
            if scope.judges_rows:
                self._add(event.key)
            shown = event._replace(data=render_change(event.key, answer, self._envelopes()).data)
            return self._pass_on(shown if scope.hides else event)
        if answer.record is None and any(each.has_key(event.key) for each in scope.permits if not each.where):
            return self._pass_on(event)
        if event.key not in self._inside:
            return None
        self._inside.discard(event.key)
        data = self._envelopes().render_absence(event.key, answer)
        return event._replace(name=ABSENT if answer.record is None else LEFT, data=data)

    def _pass_on(self, event: ChangeEvent) -> ChangeEvent | None:
        return event if self.conditioned is None else self.conditioned(event)

    def _begin(self) -> TopicScope:
        """Return the scope of the topic. Raises OutsideScope, also for a condition on what it hides."""
        request, store = self.request, self.reader.store
        deadline = Deadline.after_ms(request.terms.timeout_ms, store.clock)
        layout = begin_reading(store, request.topic, deadline).layout
        if request.since is not None and request.since.incarnation != self.scopes.of(layout).incarnation:
            layout = store.layouts.refresh(request.topic, deadline)  # as in `TopicChanges.catch_up`
        scope = self.scopes.of(layout)
        names = {asked.name for asked in request.asked}
        for each in indexes_of(layout.options).fields:
            if each.name in names:
                scope.check_condition(each)
        return scope

    def _load(self) -> None:
        """Read the keys that the listener may have. Raises ScopeTooWide, and as `read_range`."""
        request, after = self.request, None
        while True:
            scan = RangeScan(Span.of_prefix(request.key), PAGE_KEYS, after, keys_only=True)
            page = read_range(self.reader.store, request.topic, scan, request.terms)
            for key, _ in page.rows:
                self._add(key)
            after = page.next_after
            if after is None:
                return

    def _add(self, key: bytes) -> None:
        self._inside.add(key)
        if len(self._inside) > MOST_FOLLOWED:
            raise ScopeTooWide(self.request.topic)

    def _with_own_id(self, event: ChangeEvent) -> ChangeEvent:
        """Return an event with the id of a position in what the listener's rules show."""
        offsets, at, incarnation = event.id.partition("@")
        if not at or self._scope is None:
            return event
        return event._replace(id=f"{offsets}@{self._scope.incarnation_of(int(incarnation))}")

    def _with_gap(self, event: ChangeEvent) -> ChangeEvent:
        """Return the listener's first position as a gap up to it, if it has come with an earlier one."""
        if not self._has_gap or not event.id:
            return event
        self._has_gap = False
        partition, to = min(parse_topic_id(event.id).next_offsets.items())
        begin = self.request.since.next_offsets.get(partition, 0)
        return event._replace(name=GAP, data=json.dumps({"partition": partition, "from": begin, "to": to}))

    def _envelopes(self) -> Envelopes:
        decoder = self.reader.decoder(raw_keys=self.request.raw_keys)
        return Envelopes(self.reader.store.clock.now_ms(), self.request.fields, decoder)
