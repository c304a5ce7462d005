"""The resources that are written, but for those of REST Proxy."""
