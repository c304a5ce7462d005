"""The local stack: its plan, its parts, its state."""
