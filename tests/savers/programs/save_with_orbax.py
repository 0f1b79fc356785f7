"""Orbax: the CheckpointManager, with jax on the CPU.

save_with_orbax.py save rename: each child saves step 9 with two items.
save_with_orbax.py save commit: the same with a commit file instead of a rename, as on object stores.
save_with_orbax.py load SAVE...: load each, and end with 1 if one has not what was saved.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

from forking import done, serve

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
os.environ.update(JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")

# jax starts its threads when it is first asked for a device: not before the fork.
import jax  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from orbax.checkpoint._src.path import atomicity  # noqa: E402


def arguments(fill: bool):
    """What is saved."""
    array = jax.numpy.arange(1000.0) if fill else jax.numpy.zeros(1000)
    return {"w": array, "b": np.arange(10.0) if fill else np.zeros(10)}


def manager(folder: str):
    """As a training would make it."""
    commit = sys.argv[1:3] == ["save", "commit"]
    kind = atomicity.CommitFileTemporaryPath if commit else atomicity.AtomicRenameTemporaryPath
    options = ocp.CheckpointManagerOptions(max_to_keep=1, temporary_path_class=kind)
    return ocp.CheckpointManager(folder, item_names=("state", "data"), options=options)


if sys.argv[1] == "load":
    for path in sys.argv[2:]:
        restore = ocp.args.Composite(state=ocp.args.StandardRestore(arguments(False)), data=ocp.args.JsonRestore())
        found = manager(os.path.dirname(path)).restore(int(os.path.basename(path)), args=restore)
        assert np.array_equal(found["state"]["w"], np.arange(1000.0)), path
        assert found["data"] == {"at": 17}, path
    done()
FOLDER = serve()
made = manager(FOLDER)
state, data = ocp.args.StandardSave(arguments(True)), ocp.args.JsonSave({"at": 17})
made.save(9, args=ocp.args.Composite(state=state, data=data))
made.wait_until_finished()
done()
