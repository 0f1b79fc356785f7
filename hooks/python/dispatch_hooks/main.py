"""The outermost frame of every hook."""

from dispatch_hooks import child, settings
from dispatch_hooks.call import Call

REFUSE = 99
"""The status by which the gate tells its sh part to end with 1; no death of Python looks like it."""


def main(arguments):
    """Run a hook.

    :param arguments: the hook's name, the settings file, the folder of the execution files.
    :returns: :data:`REFUSE` from ``prolog-slurmctld`` for an execution that must not start, 0 otherwise.
    """
    hook = arguments[0]
    try:
        child.fill_streams()
        site = settings.load(arguments[1], arguments[2])
        for trouble in site.troubles:
            child.say(hook, trouble)
        call = Call()
        if hook == "prolog":
            from dispatch_hooks import prolog as part
        elif hook == "epilog":
            from dispatch_hooks import epilog as part
        elif hook == "prolog-slurmctld":
            from dispatch_hooks import prolog_slurmctld as part
        elif hook == "epilog-slurmctld":
            from dispatch_hooks import epilog_slurmctld as part
        elif hook == "boot":
            from dispatch_hooks import boots as part
        else:
            raise ValueError("there is no hook of this name")
        return REFUSE if part.run(call, site) else 0
    except Exception as error:  # noqa: BLE001  a hook never costs the site a node, whatever our mistake
        child.say(hook, "%s: %s" % (type(error).__name__, error))
        return 0
