"""Starts one hook: ``/usr/bin/python3 -IS start.py HOOK SETTINGS RUN``.

Kept to these few lines because a file that is run directly is compiled each time. Nothing is written
beside the modules: the installation compiles them.
"""

import sys

sys.dont_write_bytecode = True
sys.path.append(sys.argv[0].rpartition("/")[0] or ".")

from os import _exit  # noqa: E402

from dispatch_hooks.main import main  # noqa: E402

_exit(main(sys.argv[1:]))  # there is nothing to tidy up, and tidying costs a tenth of the whole
