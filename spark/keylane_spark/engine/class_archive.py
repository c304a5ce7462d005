"""`python -m keylane_spark.engine.class_archive JARS` writes the JVM's archive of the classes that jobs load.

With the archive a job on one machine starts sooner. The classes are those that a small job over files loads,
and those of the connector in the folder JARS, by their names. The JVM ignores an archive that was made by
another Java or with other jars.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from keylane_spark.engine import session
from keylane_spark.engine.connector_jars import ARCHIVE, ARCHIVED_JARS, connector

_EXIT_TIMEOUT_S = 120
_UNUSED = (
    "META-INF/",
    "org/apache/kafka/shaded/",
    "org/apache/kafka/clients/admin/internals/",
    "module-info",
)


def main(arguments: list[str]) -> None:
    """Run a small job in a JVM that writes the archive when it exits."""
    jars = connector(Path(arguments[0]))
    new, class_path = ARCHIVE.with_suffix(".new"), ":".join(jars)
    options = f'"-XX:ArchiveClassesAtExit={new}" -XX:TieredStopAtLevel=1 -Xlog:cds=off -Xlog:cds+dynamic=off'
    spark = session.start(None, {session.JAVA_OPTIONS: options, session.CLASS_PATH: class_path})
    _load(spark, jars)
    with tempfile.TemporaryDirectory() as folder:
        _run(spark, Path(folder))
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (the only way to the JVM's process)
    process = gateway.proc
    spark.stop()
    process.stdin.close()
    process.wait(_EXIT_TIMEOUT_S)
    ARCHIVED_JARS.unlink(missing_ok=True)
    new.replace(ARCHIVE)
    ARCHIVED_JARS.write_text(class_path, encoding="utf-8")


def _load(spark: SparkSession, jars: list[str]) -> None:
    """Load the connector's classes: to use them takes a broker."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001 (PySpark has no other way to Java's classes)
    loader = java.java.lang.ClassLoader.getSystemClassLoader()
    for jar in jars:
        with zipfile.ZipFile(jar) as opened:
            names = [name for name in opened.namelist() if name.endswith(".class")]
        for name in names:
            if name.startswith(_UNUSED):
                continue
            try:
                java.java.lang.Class.forName(name.removesuffix(".class").replace("/", "."), False, loader)
            except Py4JJavaError:
                continue  # a class for a library that is not there


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
    main(sys.argv[1:])
