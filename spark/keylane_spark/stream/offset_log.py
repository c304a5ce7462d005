"""Reads which offsets a micro-batch covers from the log that Spark writes before the batch runs.

The rows that `foreachBatch` gets don't show it: compacted and transactional topics have gaps, and a partition
may have no row at all. The file `offsets/<batch>` of the checkpoint is text: a version, a line of metadata,
then for each source a line of JSON, `{"topic": {"partition": end offset}}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from keylane.errors import Unavailable, WriterError

if TYPE_CHECKING:
    from pathlib import Path

    from keylane.model.topic_partition import TopicPartition


def batch_ends(checkpoint: Path, batch_id: int) -> dict[TopicPartition, int]:
    """The end offset of each partition in a batch.

    Raises Unavailable when the log is missing (a new query writes its own), WriterError when its format is
    another one.
    """
    path = checkpoint / "offsets" / str(batch_id)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"Spark's offset log of batch {batch_id} is missing: {error}") from error
    try:
        _, _, source = text.splitlines()
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(source).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError) as error:
        raise WriterError(f"Spark's offset log of batch {batch_id} can't be read: {error}") from error
