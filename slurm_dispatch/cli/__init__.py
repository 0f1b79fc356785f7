"""The command line: each command in a module of its own, which parses and prints; the work is elsewhere."""
