"""The digest of all that happens in some examples: ``python -m tests.controller.model_digest KIND SEED EXAMPLES``.

A process of its own that has run other examples before: it shows what a sequence depends on beside its seed.
"""

from __future__ import annotations

import sys

import pytest

from tests.controller.site_machine import Site
from tests.controller.test_model import begin, in_the_world, run

if __name__ == "__main__":
    in_the_world(pytest.MonkeyPatch())
    run("plain", 1, 3)
    begin()
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(Site.digest.hexdigest() + "\n")
