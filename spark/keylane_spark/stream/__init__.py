"""Writing micro-batches into lanes, the heartbeat, and how fresh the lanes are."""
