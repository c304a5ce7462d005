"""What `compression = "zstd"` saves of a topic, measured on its first records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keylane_spark.preview import compressed_share

if TYPE_CHECKING:
    from keylane_cli.survey.sample import TopicSample

_WORTH_SAYING = 0.1
"""What part of a key's memory compression must save."""


class CompressionSaving(NamedTuple):
    """Bytes that a key takes, with its value, without compression and with it. `share`: of its value's."""

    before: float
    after: float
    share: float

    @property
    def is_worth_saying(self) -> bool:
        """Whether it is much."""
        return self.before - self.after >= self.before * _WORTH_SAYING

    def __str__(self) -> str:
        return (
            f"{self.before:.0f} -> {self.after:.0f} bytes a record, {1 - self.after / self.before:.0%} less"
        )


def find_saving(sample: TopicSample, of_key: float) -> CompressionSaving | None:
    """Return what compression saves of keys that take so many bytes; None of too few records to say."""
    share = compressed_share(sample.values)
    if share is None:
        return None
    value_bytes = sum(map(len, sample.values)) / len(sample.records)
    return CompressionSaving(of_key, of_key - value_bytes * (1 - share), share)
