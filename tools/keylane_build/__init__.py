"""Builds documents and packages: OpenAPI, the template, the layer, the job's package, sizing."""
