"""A second kernel (user-mode-linux), started from the host: its root is the host's, read-only.

:mod:`~tests.uml.kernel` starts it and hears it, ``init.sh`` is its first process, and
:mod:`~tests.uml.channel` is how the program that runs in it tells what it saw.
"""
