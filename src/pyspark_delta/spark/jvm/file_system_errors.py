"""What the exceptions of Hadoop's file systems mean, by their short names.

Their own texts are not passed on: a file system may put anything into them.
"""

from __future__ import annotations

import os

from pyspark_delta.kernel.storage.local import REFUSALS as ERROR_CODES

MISSING = frozenset({"FileNotFoundException", "NoSuchFileException", "PathNotFoundException"})
NOT_EMPTY = ("PathIsNotEmptyDirectoryException", "DirectoryNotEmptyException", "IOException")
EXISTS = frozenset({"FileAlreadyExistsException", "PathExistsException"})
REASONS = {
    "AccessControlException": "the file system refuses access",
    "AccessDeniedException": "the file system refuses access",
    "ConnectException": "the file system cannot be reached",
    "DirectoryNotEmptyException": "it is a directory",
    "NotLinkException": "the file system has no hard links",
    "ParentNotDirectoryException": "a part of the path is a file",
    "PathIsNotEmptyDirectoryException": "it is a directory",
    "DSQuotaExceededException": "the quota is used up",
    "NSQuotaExceededException": "the quota is used up",
    "QuotaExceededException": "the quota is used up",
    "SafeModeException": "the name node is in safe mode",
    "SocketTimeoutException": "the file system did not answer in time",
    "UnknownHostException": "the host is not known",
    "UnsupportedFileSystemException": (
        "Hadoop has no FileContext for it, so two writers could overwrite each other"
    ),
}
# Those of them by which a file system says that it does not write, now or later.
REFUSALS = frozenset(
    {
        "AccessControlException",
        "AccessDeniedException",
        "DSQuotaExceededException",
        "NSQuotaExceededException",
        "NotLinkException",
        "ParentNotDirectoryException",
        "QuotaExceededException",
        "ReadOnlyFileSystemException",
        "UnsupportedFileSystemException",
    }
)
# Java has one class for most answers of the operating system, and puts these into its text.
_SYSTEM_REFUSALS = tuple(os.strerror(code) for code in sorted(ERROR_CODES))


def system_refusal(error: Exception) -> str | None:
    """The operating system's answer by which it refuses a write, if Java's text ends in one."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return None if java is None else system_refusal_in(str(java.getMessage()))


def system_refusal_in(message: str) -> str | None:
    """The same for the message of a Java exception."""
    text = message.rstrip(")")
    return next((answer for answer in _SYSTEM_REFUSALS if text.endswith(answer)), None)


def short_name(error: Exception) -> str:
    """The class of a Java exception without its package, or of ours."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return type(error).__name__
    name: str = java.getClass().getSimpleName()
    return name
