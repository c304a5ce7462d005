"""Several Kafka clusters by name: a topic belongs to the first one whose patterns it matches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from keylane.model.patterns import fits

DEFAULT = "default"
"""The name of the cluster of all other topics."""

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Named(Generic[T_co]):
    """A cluster's name, its topics (`*` stands for any characters), and what belongs to it."""

    name: str
    topics: tuple[str, ...]
    has: T_co

    def matches(self, topic: str) -> bool:
        """Return whether the topic is in this cluster."""
        return any(fits(pattern, topic) for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class Clusters(Generic[T_co]):
    """One thing for each cluster."""

    default: T_co
    named: tuple[Named[T_co], ...] = ()

    def of(self, topic: str) -> T_co:
        """Return what belongs to the topic's cluster."""
        return next((each.has for each in self.named if each.matches(topic)), self.default)

    def name_of(self, topic: str) -> str:
        """Return the name of the topic's cluster."""
        return next((each.name for each in self.named if each.matches(topic)), DEFAULT)

    def by_name(self) -> dict[str, T_co]:
        """Return all of them by name, the default cluster first."""
        return {DEFAULT: self.default} | {each.name: each.has for each in self.named}

    def map(self, make: Callable[[str, T_co], U]) -> "Clusters[U]":
        """Return the same clusters with what `make` returns for each name and thing."""
        named = (Named(each.name, each.topics, make(each.name, each.has)) for each in self.named)
        return Clusters(make(DEFAULT, self.default), tuple(named))
