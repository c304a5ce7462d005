"""Topics from their start to the moment that readers are switched to them."""
