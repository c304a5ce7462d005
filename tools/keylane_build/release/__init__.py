"""`make release`: builds all that a release has into dist/, checks it, and uses it outside the checkout."""
