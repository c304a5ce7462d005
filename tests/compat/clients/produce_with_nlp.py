"""nlp-kafka-rest-api (PyPI): produces two records; called with the URL, a topic and a partition."""

from __future__ import annotations

import json
import sys

from kafka_rest import Producer

url, topic, _ = sys.argv[1:]
keys = Producer(kafka_rest_api_url=url, topic_id=topic).produce(["a", {"b": 1}], "compat", ["key-1", "key-2"])
print(json.dumps({"produced": len(keys)}))
