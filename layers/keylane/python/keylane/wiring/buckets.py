"""The bucket of records that no message of the write-ahead log can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keylane.adapters.aws.settings import AwsSettings
    from keylane.ports import Bucket


def bucket_of(name: str | None, aws: AwsSettings) -> Bucket | None:
    """The bucket of this name, None where there is none."""
    from keylane.adapters.aws.s3 import S3Bucket  # noqa: PLC0415

    return S3Bucket(name, aws) if name else None
