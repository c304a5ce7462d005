"""Arrow columns to the lane protocol's bytes, without a loop over rows."""
