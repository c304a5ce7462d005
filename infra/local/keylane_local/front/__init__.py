"""A small API Gateway and Lambda: HTTP requests become events for functions in processes of their own."""
