"""Lost races: the eight public names of `delta.exceptions`, in one real tree."""

from __future__ import annotations

from pyspark_delta.errors.base import DeltaError


class DeltaConcurrentModificationException(DeltaError):
    """Another writer committed first, and the two cannot be put in an order.

    Read the table again and repeat the operation.
    """


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """The version was written by another, and this commit may not move to the next one."""


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
