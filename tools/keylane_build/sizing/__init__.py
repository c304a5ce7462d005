"""Sizes of all parts for a workload, and what a deployment costs: `python -m keylane_build.sizing`.

docs/operate/sizing.md explains the arithmetic, and `pages` writes its tables.
"""
