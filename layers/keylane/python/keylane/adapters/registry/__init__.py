"""The Schema Registry and the formats that need its schemas."""
