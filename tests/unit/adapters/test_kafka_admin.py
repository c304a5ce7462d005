"""A topic's id, of which confluent-kafka leaks a reference: counted, because nothing else can see it."""

from __future__ import annotations

import ctypes
import sys

import pytest
from confluent_kafka import Uuid
from confluent_kafka.admin import TopicDescription

from keylane.adapters.kafka.admin_session import _topic


@pytest.mark.parametrize("leaked", [0, 1])
def test_a_reference_to_a_described_topic_s_id_is_dropped_only_if_it_was_leaked(leaked):
    topic_id = Uuid(7, 8)
    text, before = str(topic_id), sys.getrefcount(topic_id)
    description = TopicDescription("t", topic_id, False, [])
    del topic_id
    for _ in range(leaked):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(description.topic_id))
    assert _topic(description).topic_id == text
    # In place of the variable the description holds it.
    topic_id = description.topic_id
    del description
    assert sys.getrefcount(topic_id) == before
    assert str(topic_id) == text
