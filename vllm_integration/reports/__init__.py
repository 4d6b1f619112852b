"""Results as people and programs read them."""
