"""Decodes values for a caller who may see some fields of them alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from keylane.errors import NoJsonObject, ValueNotDecodable
from keylane.formats.projection import project
from keylane.model.records import ValueForm
from keylane.query.decoding import ValueDecoder

if TYPE_CHECKING:
    from keylane.model.records import Layout, Record
    from keylane.query.row_scopes import RowScopes

_HIDDEN = "its fields can't be shown alone: it is not a JSON object"


class ScopedDecoder(ValueDecoder):
    """As `ValueDecoder`, of values as the scopes show them: decoded, and projected to the permitted paths.

    What is stored of such a value is never shown: neither its bytes, nor the event whose row it is. `plain`:
    decodes values as their topics have them.
    """

    def __init__(self, asked: ValueDecoder, plain: ValueDecoder, scopes: RowScopes) -> None:
        self._asked = asked
        self._plain = plain
        self._scopes = scopes

    def keeps_values(self, layout: Layout) -> bool:
        """See `ValueDecoder.keeps_values`."""
        return not self._scopes.of(layout).hides and self._asked.keeps_values(layout)

    def decode(self, layout: Layout, record: Record) -> Record:
        """See `ValueDecoder.decode`. Raises NoJsonObject for a value of which no path can be shown, too."""
        scope = self._scopes.of(layout)
        if not scope.hides:
            return self._asked.decode(layout, record)
        try:
            decoded = self._plain.decode(layout, record)
        except ValueNotDecodable as error:
            # The reason may quote the value.
            raise ValueNotDecodable(
                str(record.position), "it is not of the format", error.schema_id
            ) from error
        fields = scope.shown_fields(record)
        if fields is None or record.left_in_kafka_bytes is not None:
            return decoded
        is_json = decoded.form is None or decoded.form.name == "json"
        text = project(decoded.value, fields) if is_json else None
        if text is None:
            raise NoJsonObject
        return decoded._replace(value=text.encode("utf-8", "surrogatepass"))

    def decode_or_explain(self, layout: Layout, record: Record) -> Record:
        """See `ValueDecoder.decode_or_explain`: what can't be shown is not there."""
        scope = self._scopes.of(layout)
        if not scope.hides:
            return self._asked.decode_or_explain(layout, record)
        shown = self._plain.decode_or_explain(layout, record)
        if shown.form is not None and shown.form.undecoded is not None:
            fault = "it can't be decoded"
            return record._replace(value=b"", form=ValueForm("base64", shown.form.schema_id, None, fault))
        try:
            return self.decode(layout, record)
        except NoJsonObject:
            return record._replace(value=b"", form=ValueForm("base64", None, None, _HIDDEN))

    def incarnation(self, layout: Layout) -> int:
        """See `ValueDecoder.incarnation`: of other rules it is another one."""
        return self._scopes.of(layout).incarnation

    def shown_since_ms(self, layout: Layout) -> float:  # noqa: ARG002 (of a decoder)
        """See `ValueDecoder.shown_since_ms`: since when rules apply nobody knows."""
        return math.inf

    def shows_keys(self, layout: Layout) -> bool:
        """See `ValueDecoder.shows_keys`."""
        return self._asked.shows_keys(layout)

    def show_key(self, layout: Layout, key: bytes) -> str | None:
        """See `ValueDecoder.show_key`."""
        return self._asked.show_key(layout, key)
