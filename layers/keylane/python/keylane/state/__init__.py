"""The state in Redis as bytes: names of keys, envelopes, watermarks, lanes, windows."""
