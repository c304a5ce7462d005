"""The values of a view's records as JSON, from rows of the Kafka source."""

from __future__ import annotations

from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import RegistryUnavailable
from keylane.state.windows import Definition
from keylane_spark.engine.variants import parsed_json
from keylane_spark.schemas.framed_values import SCHEMA, UNDECODABLE, DecodeValues


def decoded(rows: DataFrame, view: Definition, registry: RegistrySettings | None) -> DataFrame:
    """The rows with values that are JSON, where those of the topic are in a Schema Registry's wire format."""
    if view.value_format != "registry" or registry is None:
        return rows
    return rows.mapInArrow(DecodeValues(registry, are_events=view.envelope != "none"), SCHEMA)


def read_values(rows: DataFrame) -> DataFrame:
    """The columns that `where` sees, of rows that are no tombstones."""
    return parsed(rows.where(f"value is not null or {UNDECODABLE}" if _marks(rows) else "value is not null"))


def parsed(rows: DataFrame) -> DataFrame:
    """All rows with their values as text and as a variant; `undecodable`: no reader can decode the value."""
    return rows.select(
        "partition",
        "offset",
        "timestamp",
        f.col("key"),
        f.col("value").cast("string").alias("value"),
        parsed_json(f.col("value").cast("string")).alias("json"),
        (f.col(UNDECODABLE) if _marks(rows) else f.lit(False)).alias(UNDECODABLE),
    )


def _marks(rows: DataFrame) -> bool:
    return UNDECODABLE in rows.columns


def registry_error(error: PythonException) -> RegistryUnavailable | None:
    """The error of a Schema Registry that a task met; None: another one. Spark keeps the text alone."""
    name = f"{RegistryUnavailable.__module__}.{RegistryUnavailable.__name__}: "
    for line in str(error).splitlines():
        if line.startswith(name):
            return RegistryUnavailable(line.removeprefix(name))
    return None
