"""Who sends a request, and what a token grants."""
