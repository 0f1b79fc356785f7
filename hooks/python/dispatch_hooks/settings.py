"""``node.conf``: the hooks' settings, ``NAME=value`` lines. It is parsed, never sourced."""

from dispatch_hooks import files

LIMIT = 65536


class Settings:
    """What :func:`load` read.

    ``notes``: the folder for notes, or ``None``; ``slurm_user``: a name or a number; ``deadline_s``: seconds
    that a hook takes at most; ``spool``: where a node keeps its notes while ``notes`` is out of reach;
    ``hand_kib``: the size of an execution's folder for handing on through the node, 0 for none;
    ``run``: the folder of the execution files; ``troubles``: what was wrong in the file, as lines.
    """

    def __init__(self, run):
        self.notes = None
        self.slurm_user = "slurm"
        self.deadline_s = 5.0
        self.spool = "/var/spool/slurm-dispatch"
        self.hand_kib = 0
        self.run = run
        self.troubles = []

    @property
    def work_s(self):
        """The part of the deadline that work may take; the rest is for saying in syslog that it did not end."""
        return 0.9 * self.deadline_s

    def take(self, name, value):
        """Take one setting over; ``ValueError`` for a value that cannot be."""
        if name in ("notes", "spool"):
            if not value.startswith("/"):
                raise ValueError("it must be an absolute path")
            setattr(self, name, value)
        elif name == "slurm_user":
            if not value:
                raise ValueError("it must be a user's name or number")
            self.slurm_user = value
        elif name == "deadline_s":
            seconds = float(value)
            if not 0.5 <= seconds <= 60:
                raise ValueError("it must be 0.5 to 60 seconds")
            self.deadline_s = seconds
        elif name == "hand_kib":
            size = int(value)
            if size and not 16 <= size <= 1024:
                raise ValueError("it must be 0, or 16 to 1024 KiB")
            self.hand_kib = size
        else:
            raise ValueError("there is no such setting")


def load(path, run):
    """The settings of ``path``. What cannot be read keeps its default, and ``troubles`` says so."""
    settings = Settings(run)
    try:
        content = files.read_regular(path, LIMIT)
    except (OSError, ValueError) as error:
        settings.troubles.append("settings %s: %s" % (path, files.reason(error)))
        return settings
    for place, text in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        name, _, value = line.partition("=")
        try:
            settings.take(name.strip(), value.strip())
        except ValueError as error:
            settings.troubles.append("settings %s, line %d, %s: %s" % (path, place, name.strip(), error))
    return settings
