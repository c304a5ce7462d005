"""A small API Gateway and Lambda: HTTP to events, functions in processes of their own."""
