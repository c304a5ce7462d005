"""The standing server, `keylane serve`: the handlers of the Lambda functions in one process, for any load."""
