"""The template, packaged and deployed to LocalStack."""
