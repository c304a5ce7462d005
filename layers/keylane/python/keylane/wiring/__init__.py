"""Builds the clients from the environment: the one place that does, a module for each function.

The makers import their client library at once, in a Lambda's init phase; they read the environment and build
at the first request: a missing variable is then a clear answer and log line, not a function that never
starts. Nothing connects before it is used.
"""
