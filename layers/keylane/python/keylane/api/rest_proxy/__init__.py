"""The resources of Confluent's REST Proxy, versions 2 and 3."""
