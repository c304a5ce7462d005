"""The resources that are read."""
