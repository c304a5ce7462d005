"""Builds what the applications work with, from an environment and a runtime: a module for each function.

The modules import their client libraries at once, in a Lambda's init phase. They read the environment and
build at the first request: a missing variable then gets a clear response and a log line, and the function
starts all the same. Nothing connects before it is used.
"""
