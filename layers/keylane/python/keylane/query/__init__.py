"""Reads: one key, many keys, joins, ranges, histories, views."""
