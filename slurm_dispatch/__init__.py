"""slurm-dispatch: replace a Slurm job at once, and make the overlap with its old processes harmless."""

__version__ = "0.1.0"
