"""What one caller may see and write: the rules of the access policy that apply, with their claims in place.

Rules are made into a scope where a token is verified; use cases that read or write take the scope of a topic.
A row outside of it is answered as a key that does not exist.
"""

from dataclasses import dataclass
from typing import TypeAlias

from keylane.model.patterns import fits
from keylane.model.routes import PermissionKind

Value: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Keys, as callers write them (of typed keys, as answers show them): one key, or all that begin so."""

    text: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PermittedRows:
    """Rows that one rule permits. They meet all that is there; several rules add up.

    Two are the same with values of the same types: for Python, true is 1.

    `key`: None for all keys. `where`: fields of the topic, and the values of which one must be the field's.
    `fields`: paths of what is shown of a value, None for all of it. `rule`: which rule it is, for logs and
    explanations.
    """

    rule: str
    key: KeyRule | None = None
    where: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    fields: tuple[str, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PermittedRows) and self.rule == other.rule and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self.rule, self.key))


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """A rule that applies to a caller: patterns of names, and the rows of the topics that they name.

    `stamp`: the header that a write gets, with the caller's name; None for none.
    """

    rows: PermittedRows
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    stamp: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What a caller may do. `caller`: their name in logs and limits, of a token's issuer and `sub`."""

    caller: str
    rules: tuple[ScopeRule, ...] = ()

    def rules_for(self, kind: PermissionKind, name: str) -> tuple[ScopeRule, ...]:
        """Return the rules that name a topic, for reading or writing, or a view; () for none."""
        return tuple(
            rule for rule in self.rules if any(fits(pattern, name) for pattern in getattr(rule, kind.value))
        )

    def reads(self, topic: str) -> tuple[PermittedRows, ...]:
        """Return the rows of a topic that may be read, by each rule; () for none."""
        return tuple(rule.rows for rule in self.rules_for(PermissionKind.READ, topic))
