"""The guards that make the promises true, and how each is removed: a module for each subject."""

from __future__ import annotations

from tests.torture.guards import (
    ages,
    compressed,
    finds,
    forgotten,
    generations,
    readers,
    scopes,
    server,
    snapshots,
    strays,
    streams,
    views,
    writer,
    writes,
)
from tests.torture.guards.mutant import Mutant, Replacement

MUTANTS: tuple[Mutant, ...] = (
    *writer.MUTANTS,
    *strays.MUTANTS,
    *ages.MUTANTS,
    *generations.MUTANTS,
    *forgotten.MUTANTS,
    *readers.MUTANTS,
    *finds.MUTANTS,
    *compressed.MUTANTS,
    *server.MUTANTS,
    *scopes.MUTANTS,
    *streams.MUTANTS,
    *snapshots.MUTANTS,
    *writes.MUTANTS,
    *views.MUTANTS,
)

__all__ = ["MUTANTS", "Mutant", "Replacement"]
