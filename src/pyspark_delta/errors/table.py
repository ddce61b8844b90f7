"""What can be wrong with a table, or with what was asked of it.  One class per recovery."""

from __future__ import annotations

from pyspark_delta.errors.base import DeltaError


class TableNotFoundError(DeltaError):
    """There is no Delta table there: check the path, or create it."""


class TableAlreadyExistsError(DeltaError):
    """There is a table already: use it, replace it, or choose another place."""


class VersionNotFoundError(DeltaError):
    """The version or time asked for is outside of what the log holds."""


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
    """A deletion vector whose bytes do not hold what its descriptor says."""


class UnsafePathError(DeltaError):
    """A path in the log that leads out of the table; nothing was opened."""


class DataFileError(DeltaError):
    """A data file that is missing, or cannot be read as the log describes it."""


class InvalidActionsError(DeltaError):
    """Actions that must not stand together in one commit; nothing was written."""


class AppendOnlyError(DeltaError):
    """The table takes appends only."""


class InvalidPredicateError(DeltaError, ValueError):
    """A predicate that cannot be understood, or names a column that is not there."""


class CommitStateUnknownError(DeltaError):
    """The store did not say whether the commit was written, and cannot be asked.

    Keep the data files: the commit may stand.  Look for `txnId` in the log once the store answers.
    """


class TooManyAttemptsError(DeltaError):
    """The commit lost every race it was allowed."""


class PostCommitHookError(DeltaError):
    """The commit stands; what runs after it (checkpoint, checksum, cleanup) failed.

    Do not repeat the write.
    """


class JobFailedError(DeltaError):
    """A Spark job of a command failed or was cancelled; `__cause__` is Spark's error."""


class OperationNotAllowedError(DeltaError):
    """What was asked does not apply to this table."""


class StreamError(DeltaError):
    """The stream cannot go on: the condition says whether to restart it, allow a change, or begin.

    A checkpoint of another table, commits that are gone, changed rows, a changed schema.
    """


class ChangeFeedError(DeltaError):
    """The changes asked for cannot be told: ask for another range, or for other columns."""
