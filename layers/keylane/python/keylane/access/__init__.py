"""Who calls, and what a token grants."""
