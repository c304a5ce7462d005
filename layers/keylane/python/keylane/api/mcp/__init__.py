"""The Model Context Protocol: messages of programs that call tools, over the routes that all callers have."""
