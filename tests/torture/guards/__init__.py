"""The guards that make the promises true, and how each is removed: a module for each subject."""

from __future__ import annotations

from tests.torture.guards import finds, generations, lanes, readers, streams, views, writes
from tests.torture.guards.mutant import Mutant, Replacement

MUTANTS: tuple[Mutant, ...] = (
    *lanes.MUTANTS,
    *generations.MUTANTS,
    *readers.MUTANTS,
    *finds.MUTANTS,
    *streams.MUTANTS,
    *writes.MUTANTS,
    *views.MUTANTS,
)

__all__ = ["MUTANTS", "Mutant", "Replacement"]
