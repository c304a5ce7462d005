"""`keylane.toml`, parsed and validated."""
