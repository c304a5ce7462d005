"""The demo: real flights, written into Kafka and read over HTTP."""
