"""Issuers of tokens: their keys, and what these have signed. The package `cryptography` verifies."""
