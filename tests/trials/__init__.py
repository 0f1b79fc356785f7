"""The same trial with three designs: an old run that still writes while its replacement runs."""
