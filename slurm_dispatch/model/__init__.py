"""Domain values: frozen, checked by their constructors, no I/O."""
