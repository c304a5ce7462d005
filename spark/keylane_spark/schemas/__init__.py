"""What a Schema Registry says of rows."""
