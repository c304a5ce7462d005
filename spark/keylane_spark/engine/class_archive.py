"""`python -m keylane_spark.engine.class_archive` writes the JVM's archive of the classes that jobs load.

With the archive a job on one machine starts sooner. The classes are those that a small job over files loads:
the same as for Kafka, but for the connector's, which the JVM can't archive. The JVM ignores an archive that
was made by another Java or with other jars.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keylane_spark.engine import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_EXIT_TIMEOUT_S = 120


def main() -> None:
    """Run a small job in a JVM that writes the archive when it exits."""
    new = session.ARCHIVE.with_suffix(".new")
    options = f'"-XX:ArchiveClassesAtExit={new}" -XX:TieredStopAtLevel=1 -Xlog:cds=off -Xlog:cds+dynamic=off'
    spark = session.start(None, {"spark.driver.extraJavaOptions": options})
    with tempfile.TemporaryDirectory() as folder:
        _run(spark, Path(folder))
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (the only way to the JVM's process)
    process = gateway.proc
    spark.stop()
    process.stdin.close()
    process.wait(_EXIT_TIMEOUT_S)
    new.replace(session.ARCHIVE)


def _run(spark: SparkSession, folder: Path) -> None:
    """Process a stream of rows on the driver and in tasks, as the job does."""
    (folder / "rows").mkdir()
    (folder / "rows" / "some.txt").write_text("a\nb\nc\n", encoding="utf-8")

    def write(batch: DataFrame, _: int) -> None:
        batch.persist()
        batch.toArrow()
        batch.groupBy("value").count().toArrow()
        batch.mapInArrow(_same, batch.schema).toArrow()
        batch.unpersist()

    rows = spark.readStream.text(str(folder / "rows"))
    query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
