"""Epochs, layouts and generations: what a start does with a topic."""
