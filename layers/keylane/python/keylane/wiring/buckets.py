"""The bucket of records that no message of the write-ahead log can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keylane.ports import Bucket
    from keylane.settings_queue import AwsSettings


def bucket_of(name: str | None, aws: AwsSettings) -> Bucket | None:
    """The bucket of this name, None where there is none."""
    from keylane.adapters.s3_bucket import S3Bucket  # noqa: PLC0415

    return S3Bucket(name, aws) if name else None
