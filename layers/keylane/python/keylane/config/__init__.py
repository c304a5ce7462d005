"""Settings of the functions, parsed from the environment."""
