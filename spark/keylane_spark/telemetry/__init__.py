"""Counting what the job writes, and reporting it."""
