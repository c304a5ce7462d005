"""Columns of records: from the rows of a log to the lane protocol's bytes, without a loop over rows."""
