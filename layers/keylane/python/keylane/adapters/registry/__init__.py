"""The Schema Registry's client, and decoders, encoders and value checks by its schemas."""
