"""Starts one hook: ``/usr/bin/python3 -IS start.py HOOK SETTINGS RUN``.

Kept to these few lines because a file that is run directly is compiled each time. Nothing is written
beside the modules: the installation compiles them.
"""

import sys

sys.dont_write_bytecode = True
sys.path.append(sys.argv[0].rpartition("/")[0] or ".")

from dispatch_hooks.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
