"""Commands that talk to any deployed API, by its Python client."""
