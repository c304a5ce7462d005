"""Which offsets a micro-batch covers, from the offset log that Spark writes before the batch runs.

`foreachBatch` gives the rows alone, and rows don't tell: a compacted or transactional topic has gaps, and
a partition may have had nothing. The file `offsets/<batch>` of the checkpoint is text: a version, a line
of metadata, then a line of JSON for each source, `{"topic": {"partition": end offset}}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from keylane.errors import WriterError

if TYPE_CHECKING:
    from pathlib import Path

    from keylane_spark.freshness import Place


def batch_ends(checkpoint: Path, batch_id: int) -> dict[Place, int]:
    """The end offset of each partition in a batch. Raises WriterError when the log isn't as expected."""
    path = checkpoint / "offsets" / str(batch_id)
    try:
        _, _, source = path.read_text(encoding="utf-8").splitlines()
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(source).items()
            for partition, offset in partitions.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        raise WriterError(f"Spark's offset log of batch {batch_id} can't be read: {error}") from error
