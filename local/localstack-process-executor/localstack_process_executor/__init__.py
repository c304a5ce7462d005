"""LocalStack's Lambda functions as local processes, where no container engine runs."""
