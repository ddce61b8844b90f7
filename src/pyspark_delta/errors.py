"""The exceptions that callers can catch: one root class, and one class for each recovery.

DeltaError                                       condition, parameters, sqlstate
├── TableNotFoundError                           check the path, or create the table
├── TableAlreadyExistsError                      use it, replace it, or go elsewhere
├── VersionNotFoundError                         request a version the log holds
├── CorruptLogError                              restore the file that is named
├── UnsupportedProtocolError                     use a newer release
├── ProtocolError                                make a change the protocol allows
├── SchemaError                                  change the data or the schema
├── PartitionValueError                          correct the value
├── PropertyError (ValueError)                   correct the property
├── ConstraintError                              correct the rows or the constraint
├── DeletionVectorError                          restore the vector
├── UnsafePathError                              allow the location, or distrust the table
├── DataFileError                                restore the file, or read another version
├── InvalidActionsError                          commit actions that go together
├── AppendOnlyError                              append, or change the property
├── InvalidPredicateError (ValueError)           correct the predicate
├── OperationNotAllowedError                     use another table or operation
├── JobFailedError                               correct the cause, run the command again
├── CommitStateUnknownError                      keep the files, look into the log
├── TooManyAttemptsError                         try again later
├── PostCommitHookError                          nothing: the commit succeeded
├── StreamError                                  restart, allow the change, or start again
├── ChangeFeedError                              request another range of changes
├── DeltaConcurrentModificationException         read again and repeat
│   ├── ConcurrentWriteException
│   ├── MetadataChangedException
│   ├── ProtocolChangedException
│   ├── ConcurrentAppendException
│   ├── ConcurrentDeleteReadException
│   ├── ConcurrentDeleteDeleteException
│   └── ConcurrentTransactionException
└── StorageError                                 look at the store
    ├── FileAlreadyExistsError (FileExistsError)
    ├── FileMissingError (FileNotFoundError)
    ├── NothingWrittenError                      write again
    │   └── StorageRefusedError                  permissions, quota, space: correct them
    └── UnsupportedSchemeError

An error has a *condition* (delta-spark's error class), the parameters that delta-spark gives it,
an SQLSTATE and one sentence on what to do.  The Python class shows the way to recover, the
condition names what happened; `conditions.json` has the conditions, SQLSTATEs and sentences.

A class in parentheses is the builtin that the error also inherits from.  Raised by methods of
Spark or of `DeltaTable`, an error is an exception of PySpark too (`spark/api/errors.py`).

>>> error = DeltaError("DELTA_VERSION_NOT_FOUND", userVersion=9, earliest=0, latest=3)
>>> error.condition, error.sqlstate, error.parameters["latest"]
('DELTA_VERSION_NOT_FOUND', '22003', '3')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar

# A parameter may come from a hostile log; more than this helps no reader of the message.
_LONGEST_PARAMETER = 4096

# Newlines and tabs stay: a schema is printed over several lines.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_WORD = re.compile(r"[^\s'\"<>]+")


class DeltaError(Exception):
    """The base class of all errors that this package raises.

    `condition` is delta-spark's error class, `parameters` its message parameters as text,
    `sqlstate` the five characters that SQL gives the condition.  Neither parameters nor message
    contain the password or the query string of a URI.
    """

    def __init__(self, condition: str, /, **parameters: object) -> None:
        self.condition = condition
        self.parameters: dict[str, str] = {
            key: without_secrets(str(value)) for key, value in parameters.items()
        }
        entry = conditions()[condition]
        self.sqlstate: str = entry["sqlstate"]
        message = entry["message"].format_map(_Parameters(self.parameters))
        super().__init__(f"[{condition}] {message} SQLSTATE: {self.sqlstate}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles exceptions; keyword-only parameters need a way back.
        return (_rebuilt, (type(self), self.condition, self.parameters))

    # PySpark's spelling, so that code written for its errors works on ours.
    def getCondition(self) -> str:
        """The condition, as `PySparkException.getCondition` gives it."""
        return self.condition

    getErrorClass = getCondition

    def getMessageParameters(self) -> dict[str, str]:
        """The parameters, as `PySparkException.getMessageParameters` gives them."""
        return dict(self.parameters)

    def getSqlState(self) -> str:
        """The SQLSTATE, as `PySparkException.getSqlState` gives it."""
        return self.sqlstate

    def getMessage(self) -> str:
        """The whole text, as `PySparkException.getMessage` gives it."""
        return str(self)


class TableNotFoundError(DeltaError):
    """The path or name has no Delta table: check it, or create the table."""


class TableAlreadyExistsError(DeltaError):
    """The table exists already: use it, replace it, or choose another location."""


class VersionNotFoundError(DeltaError):
    """The requested version or time is outside of the range that the log holds."""


class CorruptLogError(DeltaError):
    """The log breaks the protocol: the parameters name the file, the place and the reason."""


class UnsupportedProtocolError(DeltaError):
    """The table needs a feature or protocol version that is not supported here."""


class ProtocolError(DeltaError):
    """A change to protocol or features that the protocol forbids."""


class SchemaError(DeltaError):
    """A schema that is not legal, or two that do not fit together."""


class PartitionValueError(DeltaError):
    """A partition value that its column's type cannot hold."""


class PropertyError(DeltaError, ValueError):
    """A table property with an unknown key or an illegal value."""


class ConstraintError(DeltaError):
    """Data that a constraint of the table refuses, or a constraint that cannot be made."""


class DeletionVectorError(DeltaError):
    """A deletion vector whose bytes do not match its descriptor."""


class UnsafePathError(DeltaError):
    """A path in the log that leads out of the table; nothing was opened."""


class DataFileError(DeltaError):
    """A data file that is missing, or cannot be read as the log describes it."""


class InvalidActionsError(DeltaError):
    """Actions that must not be in one commit together; nothing was written."""


class AppendOnlyError(DeltaError):
    """The table takes appends only."""


class InvalidPredicateError(DeltaError, ValueError):
    """A predicate that cannot be parsed, or that names an unknown column."""


class CommitStateUnknownError(DeltaError):
    """The store did not report whether the commit was written, and cannot be queried now.

    Keep the data files: the commit may have succeeded.  Look for `txnId` in the log once the store
    answers.
    """


class TooManyAttemptsError(DeltaError):
    """The commit lost to other writers as often as it was allowed to try."""


class PostCommitHookError(DeltaError):
    """The commit succeeded; a hook after it (checkpoint, checksum, cleanup) failed.

    Do not repeat the write.
    """


class JobFailedError(DeltaError):
    """A Spark job of a command failed or was cancelled; `__cause__` is Spark's error."""


class OperationNotAllowedError(DeltaError):
    """The requested operation does not apply to this table."""


class StreamError(DeltaError):
    """The stream cannot continue: its condition names the recovery (restart, allow, start again).

    Causes: a checkpoint of another table, missing commits, changed rows, a changed schema.
    """


class ChangeFeedError(DeltaError):
    """The requested changes cannot be determined: choose another range, or other columns."""


class DeltaConcurrentModificationException(DeltaError):
    """Another writer committed first, and the two cannot be put in an order.

    Read the table again and repeat the operation.
    """


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Another writer committed the version, and this commit may not move to the next one."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """Another writer changed schema, partitioning or properties since the table was read."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """Another writer changed the table's protocol since the table was read."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Another writer added files that this transaction would have read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Another writer removed a file that this transaction read."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Another writer removed a file that this transaction removes too."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another writer committed under the same application id."""


class StorageError(DeltaError):
    """A request to a store failed, and its outcome may be unknown."""

    CONDITION: ClassVar = "DELTA_STORAGE_ERROR"

    def __init__(self, condition: str | None = None, /, **parameters: object) -> None:
        super().__init__(condition or self.CONDITION, **parameters)


class FileAlreadyExistsError(StorageError, FileExistsError):
    """`create` found the file: another writer, or an earlier attempt of this one, wrote it."""

    CONDITION: ClassVar = "DELTA_STORAGE_FILE_ALREADY_EXISTS"


class FileMissingError(StorageError, FileNotFoundError):
    """The requested file does not exist."""

    CONDITION: ClassVar = "DELTA_STORAGE_FILE_NOT_FOUND"


class NothingWrittenError(StorageError):
    """Nothing was written, for a reason that may pass: the write may be repeated."""

    CONDITION: ClassVar = "DELTA_STORAGE_NOT_WRITTEN"


class StorageRefusedError(NothingWrittenError):
    """The store refused the write: nothing was written, and repeating it does not help."""

    CONDITION: ClassVar = "DELTA_STORAGE_REFUSED"


class UnsupportedSchemeError(StorageError):
    """No store supports the scheme of this URI."""

    CONDITION: ClassVar = "DELTA_STORAGE_UNSUPPORTED_SCHEME"


__all__ = sorted(  # every class of this module
    name
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, DeltaError)
)


def without_secrets(text: str) -> str:
    """`text` without the passwords and queries of the URIs in it."""
    if "://" not in text:
        return text
    return _WORD.sub(lambda word: _without_secrets_in_address(word[0]), text)


@cache
def conditions() -> Mapping[str, Mapping[str, str]]:
    """Every condition: its SQLSTATE, its message template, and PySpark's class for it, if any."""
    text = files("pyspark_delta").joinpath("conditions.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return MappingProxyType(loaded)


class _Parameters(dict[str, str]):
    """Parameters formatted for a message template; a missing one is replaced by its own name."""

    def __getitem__(self, key: str) -> str:
        value = super().__getitem__(key)
        if len(value) > _LONGEST_PARAMETER:
            value = f"{value[:_LONGEST_PARAMETER]}... ({len(value)} characters)"
        return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", value)

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def _without_secrets_in_address(word: str) -> str:
    # Signed URIs have their secret in the query, older ones as a password.  A user part
    # without a password stays: abfss names its container there.
    scheme, *rest = word.split("://")
    parts = [scheme]
    for part in rest:
        before, query, _ = part.partition("?")
        authority, slash, path = before.partition("/")
        user, at, host = authority.rpartition("@")
        if at and ":" in user:
            authority = f"{user.partition(':')[0]}:***@{host}"
        parts.append(f"{authority}{slash}{path}")
        if query:
            return "://".join(parts) + "?***"
    return "://".join(parts)


def _rebuilt(kind: type[DeltaError], condition: str, parameters: dict[str, str]) -> DeltaError:
    return kind(condition, **parameters)
