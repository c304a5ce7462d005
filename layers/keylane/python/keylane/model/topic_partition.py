"""A partition of a topic."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""Topic and partition."""
