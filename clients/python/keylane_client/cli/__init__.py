"""The program `keylane`: commands that talk to any deployed API, by the client. Needs the extra `cli`."""
