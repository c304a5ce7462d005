"""Parquet, for whoever has installed pyarrow."""

from typing import Any

from keylane_client.cli.errors import BadArgument


def require_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its module of Parquet. Raises BadArgument if it is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (its import takes long)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise BadArgument("Parquet files need pyarrow: pip install pyarrow") from error
    return pa, parquet
