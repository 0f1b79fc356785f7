"""In the guest: a server of NFSv4.2 on a disk of its own, and clients of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SERVED = "/dev/nfs/served"
MODULES = "/usr/lib/uml/modules"
EXPORT = "rw,sync,no_root_squash,no_subtree_check,fsid=0,insecure"
DAEMONS_S = 60.0


class Tools:
    """The programs of NFS, in a folder where ``tools/ensure-host --unpack`` put them, or installed."""

    def __init__(self, folder: str) -> None:
        # Under a name that nothing is mounted over below.
        top = Path("/dev/nfs/tools")
        top.mkdir(parents=True)
        if os.path.isdir(folder):
            subprocess.run(["mount", "--bind", folder, top], check=True)
        places = [str(top / place) for place in ("usr/sbin", "sbin", "usr/bin", "bin")]
        libraries = sorted({str(path.parent) for path in top.glob("usr/lib/*/*.so.*")})
        libraries += sorted({str(path.parent) for path in top.glob("lib/*/*.so.*")})
        self._environment = {
            "PATH": ":".join([*places, os.environ["PATH"], "/usr/sbin", "/sbin"]),
            "LD_LIBRARY_PATH": ":".join(libraries),
        }

    def run(self, *argv: str, program: str | None = None) -> None:
        """One of them, to its end. :raises AssertionError: it failed.

        :param program: the file that is run, where it acts by the name by which it is called.
        """
        found = shutil.which(program or argv[0], path=self._environment["PATH"])
        if found is None:
            raise AssertionError(f"{program or argv[0]} is not there: make kernel")
        done = subprocess.run(
            argv, executable=found, env=self._environment, capture_output=True, text=True, timeout=DAEMONS_S,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}: {done.stdout}{done.stderr}")


def _put(path: str, text: str) -> None:
    Path(path).write_text(text + "\n", "ascii")


def start(tools: Tools, device: str) -> None:
    """Serve ``device``, which has an ext4."""
    modules = Path("/dev/nfs/modules")
    (modules / "lib").mkdir(parents=True)
    (modules / "lib" / "modules").symlink_to(MODULES)
    for module in ("nfsd", "nfsv4"):
        tools.run("modprobe", "-d", str(modules), module, program="kmod")
    os.mkdir(SERVED)
    tools.run("mount", "-t", "ext4", device, SERVED)
    tools.run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    tools.run("ip", "link", "set", "lo", "up")
    os.mkdir("/dev/nfs/recovery")
    _put("/proc/fs/nfsd/nfsv4recoverydir", "/dev/nfs/recovery")
    # Their state is in /var/lib/nfs, and so they have a /var/lib of their own.
    daemons = f"""
set -e
mount -t tmpfs none /var/lib
mkdir /var/lib/nfs
touch /var/lib/nfs/etab
exportfs -i -o {EXPORT} 127.0.0.0/8:{SERVED}
rpc.nfsd -N 3 -V 4.2 4
rpc.mountd -N 3
"""
    tools.run("unshare", "-m", "sh", "-c", daemons)
    # It waits for clients that it had before; there are none.
    _put("/proc/fs/nfsd/v4_end_grace", "Y")


def mount(tools: Tools, number: int, options: str) -> str:
    """A client of its own, with a cache of its own; returns where it is mounted.

    Each has an address and an identifier of its own, so that the server takes them for two machines.
    """
    folder = f"/dev/nfs/{'ab'[number]}"
    os.makedirs(folder, exist_ok=True)
    _put("/sys/fs/nfs/net/nfs_client/identifier", f"client{number}")
    words = ",".join(filter(None, ["vers=4.2", "nosharecache", options]))
    tools.run("mount.nfs4", f"127.0.0.{number + 1}:/", folder, "-o", words)
    return folder


def clients() -> list[str]:
    """What the server calls its clients."""
    found = []
    for folder in Path("/proc/fs/nfsd/clients").iterdir():
        lines = (folder / "info").read_text().splitlines()
        found += [line.partition(":")[2].strip() for line in lines if line.startswith("name:")]
    return sorted(found)
