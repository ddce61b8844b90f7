"""Publish a finished file under its final name, or fail if the name exists; never replace.

link(2) does that on POSIX file systems.  Some (FAT, a few FUSE and network file systems) have no
hard links; Linux's renameat2(2) with RENAME_NOREPLACE is as good.  Where neither works the file is
not published: a plain rename would silently overwrite another writer's commit.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

_NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}
)
_NO_SUCH_RENAME = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1

Mover = Callable[[str, str], None]


def rename_without_replacing(source: str, target: str) -> None:
    """Rename atomically; FileExistsError when `target` exists."""
    if _RENAMEAT2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    ctypes.set_errno(0)
    if _RENAMEAT2(
        _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE
    ):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def publish(
    staged: str, final: str, *, link: Mover = os.link, rename: Mover = rename_without_replacing
) -> None:
    """Publish `staged` as `final`; FileExistsError when `final` exists.

    `staged` may or may not remain; the caller removes it.
    """
    try:
        link(staged, final)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
    else:
        return
    try:
        rename(staged, final)
    except OSError as error:
        if error.errno not in _NO_SUCH_RENAME:
            raise
        raise OSError(
            error.errno,
            "the file system can neither link nor rename without replacing,"
            " so two writers could overwrite each other",
        ) from None


def _renameat2() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # not Linux, or a C library from before 2018
        return None
    path_at = (ctypes.c_int, ctypes.c_char_p)
    function.argtypes = (*path_at, *path_at, ctypes.c_uint)
    function.restype = ctypes.c_int
    typed: Callable[..., int] = function
    return typed


_RENAMEAT2 = _renameat2()
