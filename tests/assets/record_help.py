"""Records what sbatch of a Debian release says of its version and its options.

``python3 -m tests.assets.record_help SUITE`` (``bookworm``: Slurm 22.05, ``sid``: the newest) downloads the packages
from the mirror that this machine has, unpacks them in a temporary folder, and runs sbatch there with the C library of
its own release. It writes ``slurm-<version>/help.json`` and ``version.json`` beside this file, in the form of
``record.py``, and ``options.json``: every option, long and short, with what it takes, as its getopt_long says by
refusing it. For a Debian machine, as root (apt gives its downloads to a user of its own). Nothing is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_dispatch.slurm.options import NO_VALUE, OPTIONAL_VALUE, OPTIONS, VALUE

HERE = Path(__file__).parent
PACKAGES = ("slurm-client", "slurm-wlm-basic-plugins", "libc6", "liblua5.1-0", "libmunge2")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEADLINE_S = 300.0


def output(argv: list[str], cwd: Path, **variables: str) -> str:
    """What a command prints, which must end with 0."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", **variables}
    done = subprocess.run(argv, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    if done.returncode != 0:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}")
    return done.stdout


def mirror() -> str:
    """The mirror that this machine gets its packages of Debian from."""
    sites = output(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"], HERE).split()
    return next(site for site in sites if site.rstrip("/").endswith("/debian"))


def unpack(suite: str, folder: Path) -> Path:
    """The files of the packages of ``suite``, below a folder that is returned."""
    for name in ("lists/partial", "cache/archives/partial", "packages", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    folder.chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, "_apt")
    places = {"Etc::sourcelist": "list", "Etc::sourceparts": "-", "State::lists": "lists", "Cache": "cache"}
    apt = ["apt-get", "-q"]
    for name, place in places.items():
        apt += ["-o", f"Dir::{name}={place if place == '-' else folder / place}"]
    output([*apt, "update"], folder)
    output([*apt, "download", *PACKAGES], folder / "packages")
    for package in sorted((folder / "packages").glob("*.deb")):
        output(["dpkg", "-x", str(package), str(folder / "root")], folder)
    return folder / "root"


class Sbatch:
    """An unpacked sbatch that can be asked what it thinks of words. It reaches no slurmctld."""

    def __init__(self, root: Path, folder: Path) -> None:
        libraries = next(root.glob("usr/lib/*-linux-gnu"))
        plugins = next(root.glob("usr/lib/*/slurm-wlm"))
        # /lib of a release in which /lib and /usr/lib are not one
        paths = [plugins, libraries, *root.glob("lib/*-linux-gnu")]
        config = folder / "slurm.conf"
        config.write_text(f"ClusterName=x\nSlurmctldHost=localhost\nAuthType=auth/none\nPluginDir={plugins}\n")
        loader = next(path for path in root.glob("**/ld-linux-*") if path.is_file())
        self.argv = [str(loader), "--library-path", ":".join(map(str, paths)), str(root / "usr/bin/sbatch")]
        self.folder, self.config = folder, config

    def says(self, word: str) -> str:
        """What it prints about itself."""
        return output([*self.argv, word], self.folder, SLURM_CONF=str(self.config))

    def complaint(self, word: str) -> str:
        """What getopt_long, or what comes after it, has against a command line of this one word."""
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SLURM_CONF": str(self.config)}
        done = subprocess.run(
            [*self.argv, word], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", timeout=60,
        )  # fmt: skip
        return done.stderr

    def long(self, known: set[str]) -> dict[str, str]:
        """Every long option with what it takes.

        :param known: names to try; those that they have not are found by asking for each beginning letter.
        """
        names = set(known)
        for letter in string.ascii_lowercase:
            # It says of one that begins more than one option which ones these are.
            names.update(re.findall(r"'--([a-z0-9-]{2,})'", self.complaint(f"--{letter}")))
        found = {}
        for name in sorted(names):
            alone, given = self.complaint(f"--{name}"), self.complaint(f"--{name}=1")
            if re.search("unrecognized option|is ambiguous", alone):
                continue
            takes = VALUE if "requires an argument" in alone else OPTIONAL_VALUE
            found[name] = NO_VALUE if "doesn't allow an argument" in given else takes
        return found

    def short(self) -> dict[str, bool]:
        """Every short option, and whether it requires a value."""
        said = {letter: self.complaint(f"-{letter}") for letter in string.ascii_letters}
        return {
            letter: "requires an argument" in text for letter, text in said.items() if "invalid option" not in text
        }


def main(suite: str) -> None:
    """Record one release."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sbatch = Sbatch(unpack(suite, folder), folder)
        said = {word: sbatch.says(f"--{word}") for word in ("version", "help")}
        shown = re.findall(r"--([a-z0-9-]+)", said["help"])
        options = {"long": sbatch.long({*OPTIONS, *shown}), "short": sbatch.short()}
    version = ".".join(said["version"].split()[-1].split(".")[:2])
    place = HERE / f"slurm-{version}"
    place.mkdir(exist_ok=True)
    for word, text in said.items():
        write(place / f"{word}.json", {"argv": ["sbatch", f"--{word}"], "status": 0, "stderr": "", "stdout": text})
    write(place / "options.json", options)


def write(path: Path, content: object) -> None:
    """One file."""
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
