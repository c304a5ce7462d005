"""Processes and ports of the local stack."""
