"""Metrics of the functions: the catalogue, and the meter that counts and writes them."""
