"""The hooks, run as Slurm runs them, under every Python that is here."""
