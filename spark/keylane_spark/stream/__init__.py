"""Micro-batches into lanes, heartbeats, and what the job knows to be complete."""
