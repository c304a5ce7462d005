"""What `keylane up` runs: the real parts as local processes."""
