"""Epochs and generations: what a start of the job does with a topic's state."""
