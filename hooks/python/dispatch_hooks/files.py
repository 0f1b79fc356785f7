"""Files that appear whole or not at all, and reading what somebody else may have planted."""

import errno
import os

TEMPORARY_PREFIX = ".tmp-"
"""The prefix of ``slurm_dispatch.durable``: every reader passes over such names."""
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_REGULAR = 0o100000
_TYPE = 0o170000
# Filesystems that cannot sync a folder answer so.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def reason(error):
    """Why it failed, without the path."""
    return getattr(error, "strerror", None) or str(error)


def temporary_name():
    """A fresh unfinished name."""
    return TEMPORARY_PREFIX + os.urandom(8).hex()


def read_regular(path, limit, folder=None):
    """The bytes of a regular file: never through a link, never more than ``limit``, never waiting for a FIFO.

    :raises OSError: it cannot be read.
    :raises ValueError: it is not a regular file, or is longer than ``limit``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if found.st_mode & _TYPE != _REGULAR:
            raise ValueError("it is not a regular file")
        content = b""
        while len(content) <= limit:
            part = os.read(descriptor, limit + 1 - len(content))
            if not part:
                return content
            content += part
        raise ValueError("it has more than %d bytes" % limit)
    finally:
        os.close(descriptor)


def write_temporary(content, mode, folder, sync):
    """Write a fresh temporary file in the folder with descriptor ``folder``; returns its name."""
    name = temporary_name()
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=folder)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view):]
        os.fchmod(descriptor, mode)
        if sync:
            os.fsync(descriptor)
    except OSError:
        remove(name, folder)
        raise
    finally:
        os.close(descriptor)
    return name


def remove(name, folder):
    """Unlink, if it is there and can be."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass  # a temporary name is passed over by every reader


def create_whole(path, name, content):
    """Make ``path/name`` with exactly ``content``, durable, or leave what is there.

    :returns: true if this call made it, false if the name was there.
    :raises OSError: it is not known to be there; a half-written name never is.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        temporary = write_temporary(content, 0o600, folder, sync=True)
        try:
            made = _link(temporary, name, folder)
        finally:
            remove(temporary, folder)
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        return made
    finally:
        os.close(folder)


def _link(temporary, name, folder):
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        # The answer of a link over NFS can be lost: the link count of our own file tells.
        if os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_nlink > 1:
            return True
        if error.errno == errno.EEXIST:
            return False
        raise
    return True


def open_own_folder(path, mode):
    """A descriptor of the folder ``path``, made if it is missing, that nobody but this user can write into.

    :raises OSError: it cannot be made or opened, or a link stands there.
    :raises ValueError: it belongs to somebody else.
    """
    try:
        os.mkdir(path, mode)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid():
            raise ValueError("it belongs to user %d" % found.st_uid)
        if found.st_mode & 0o7777 != mode:
            os.fchmod(folder, mode)
    except (OSError, ValueError):
        os.close(folder)
        raise
    return folder
