"""Packaging of the template, and its deployment to LocalStack."""
