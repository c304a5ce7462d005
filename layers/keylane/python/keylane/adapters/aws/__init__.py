"""AWS: SQS and S3 behind the ports."""
