"""The Spark job that writes the state of topics into lanes."""
