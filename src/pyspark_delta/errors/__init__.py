"""What callers can catch.  Catch broadly or narrowly: one class per recovery, one root.

DeltaError                                       condition, parameters, sqlstate
├── TableNotFoundError                           check the path, or create the table
├── TableAlreadyExistsError                      use it, replace it, or go elsewhere
├── VersionNotFoundError                         ask for a version the log holds
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
├── PostCommitHookError                          nothing: the commit stands
├── StreamError                                  restart, allow the change, or begin anew
├── ChangeFeedError                              ask for another range of changes
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

Classes in parentheses are the builtin that an error also is; out of methods of Spark's, and of
`DeltaTable`, it is one of PySpark's too (`spark/spark_errors.py`).  The conditions, their SQLSTATEs
and sentences are in `conditions.json`.

>>> from pyspark_delta.errors import ConcurrentAppendException, DeltaError
>>> issubclass(ConcurrentAppendException, DeltaError)
True
"""

from __future__ import annotations

from pyspark_delta.errors.base import DeltaError, conditions
from pyspark_delta.errors.conflicts import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark_delta.errors.storage import (
    FileAlreadyExistsError,
    FileMissingError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
    UnsupportedSchemeError,
)
from pyspark_delta.errors.table import (
    AppendOnlyError,
    ChangeFeedError,
    CommitStateUnknownError,
    ConstraintError,
    CorruptLogError,
    DataFileError,
    DeletionVectorError,
    InvalidActionsError,
    InvalidPredicateError,
    JobFailedError,
    OperationNotAllowedError,
    PartitionValueError,
    PostCommitHookError,
    PropertyError,
    ProtocolError,
    SchemaError,
    StreamError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TooManyAttemptsError,
    UnsafePathError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)

__all__ = [
    "AppendOnlyError",
    "ChangeFeedError",
    "CommitStateUnknownError",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "ConstraintError",
    "CorruptLogError",
    "DataFileError",
    "DeletionVectorError",
    "DeltaConcurrentModificationException",
    "DeltaError",
    "FileAlreadyExistsError",
    "FileMissingError",
    "InvalidActionsError",
    "InvalidPredicateError",
    "JobFailedError",
    "MetadataChangedException",
    "NothingWrittenError",
    "OperationNotAllowedError",
    "PartitionValueError",
    "PostCommitHookError",
    "PropertyError",
    "ProtocolChangedException",
    "ProtocolError",
    "SchemaError",
    "StorageError",
    "StorageRefusedError",
    "StreamError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TooManyAttemptsError",
    "UnsafePathError",
    "UnsupportedProtocolError",
    "UnsupportedSchemeError",
    "VersionNotFoundError",
    "conditions",
]
