"""The connector's jars, and the JVM's archive of their classes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CONNECTOR = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")
"""The jars of the folder that Spark needs; the others belong to the local broker."""
IAM = "aws-msk-iam-auth"
"""The jar for AWS_MSK_IAM."""

ARCHIVE = Path(sys.prefix) / "spark.jsa"
"""The JVM's archive of classes, if set-up made one (`engine.class_archive`)."""
ARCHIVED_JARS = Path(sys.prefix) / "spark.classpath"
"""The class path of the connector's jars in the archive: with another one the JVM does not accept it."""
JARS = "spark.jars"


def connector(jars: Path) -> list[str]:
    """The jars of a folder that Spark needs."""
    return [str(path) for path in sorted(jars.glob("*.jar")) if path.name.startswith(CONNECTOR)]


def with_iam(jars: Path | None, extra: Mapping[str, object]) -> Mapping[str, object]:
    """`extra` with the jar for AWS_MSK_IAM, which Spark's own reader needs.

    It is named in `spark.jars`, not on the class path: it contains a Netty, and Spark's own comes first so.
    A job that needs it starts without the archive of classes.
    """
    named = str(extra.get(JARS, ""))
    if jars is None or IAM in named:
        return extra
    found = [str(path) for path in sorted(jars.glob(f"{IAM}-*.jar"))]
    return {**extra, JARS: ",".join([*found, *filter(None, [named])])}


def all_jars(jars: Path, extra: str) -> str:
    """The value of `spark.jars`: the user's, and those of the connector that the user has not named."""
    named = [path.strip() for path in extra.split(",") if path.strip()]
    names = {path.rpartition("/")[2] for path in named}
    return ",".join([*named, *(path for path in connector(jars) if path.rpartition("/")[2] not in names)])


class ClassArchive(NamedTuple):
    """What makes the JVM use the archive of classes."""

    class_path: str
    java_options: tuple[str, ...]


def archived(jars: Path | None) -> ClassArchive | None:
    """The archive of classes; None if there is none with these jars."""
    class_path = ":".join(connector(jars)) if jars is not None else ""
    if not class_path or not ARCHIVE.exists() or not ARCHIVED_JARS.exists():
        return None
    if ARCHIVED_JARS.read_text(encoding="utf-8") != class_path:
        return None
    return ClassArchive(
        class_path, (f'"-XX:SharedArchiveFile={ARCHIVE}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    )
