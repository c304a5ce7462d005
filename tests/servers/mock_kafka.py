"""librdkafka's own mock cluster: a broker whose next answers a test decides, as real ones give them rarely.

It is a part of the library that confluent-kafka ships, and has no Python API: its functions are called by
ctypes, here alone. A version of the library that renames them fails with AttributeError.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka

PRODUCE = 0
"""Kafka's number of produce requests."""
NOT_LEADER_OR_FOLLOWER = 6
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
_ERROR_TEXT_BYTES = 512
_PRODUCER = 0
_BROKER = 1


def _library() -> Any:
    [path] = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_broker_set_rtt", number, [pointer, ctypes.c_int32, number]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        (
            "rd_kafka_mock_push_request_errors_array",
            None,
            [pointer, ctypes.c_int16, ctypes.c_size_t, pointer],
        ),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockKafka:
    """A mock cluster of one broker at `bootstrap`."""

    def __init__(self) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(configuration, b"log_level", b"3", error, _ERROR_TEXT_BYTES)
        self._owner = self._library.rd_kafka_new(_PRODUCER, configuration, error, _ERROR_TEXT_BYTES)
        assert self._owner, error.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._owner, 1)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)

    def answer_after(self, milliseconds: int) -> None:
        """Delay each answer by so much."""
        self._library.rd_kafka_mock_broker_set_rtt(self._cluster, _BROKER, milliseconds)

    def answer_with(self, *errors: int, request: int = PRODUCE) -> None:
        """Answer the next requests of this kind with these errors, one each."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), codes)

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._owner)
