"""pymapr-kafkarest (PyPI): produces to a partition. It sends all four times, even after a success."""

from __future__ import annotations

import json
import logging
import sys

from pymapr_kafkarest.kafkarest import MaprKProducer

logging.disable()
url, topic, partition = sys.argv[1:]
producer = MaprKProducer(f"{url}/", headers={})
producer.produce([{"key": "key-1", "value": {"a": 1}}], topic=topic, partition=int(partition))
print(json.dumps({"produced": 4}))
