"""The part of the hooks that needs more than sh. Python 3.6 and newer, standard library only.

It imports nothing of the package ``slurm_dispatch`` and nothing heavy: ``tests/hooks/test_imports.py`` pins
what a run loads. The laws of every hook: it exits 0 for each trouble of its own and says so in syslog; it
ends within its deadline, whatever a filesystem does; it runs no command, of Slurm's or other; what a user
can write (comment, job name, environment) is data.
"""
