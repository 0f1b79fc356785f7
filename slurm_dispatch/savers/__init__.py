"""What is known of the libraries that write checkpoints, one small module each; none of them is imported.

:mod:`slurm_dispatch.savers.table` has them all, :mod:`slurm_dispatch.savers.auto` recognises them.
"""
