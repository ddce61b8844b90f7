"""Bytes: the stores a log stands on, and the addresses of files.

`LogStore` is the contract; `store_for` finds the store for an address.  Nothing here knows what
a file means.
"""

from pyspark_delta.kernel.storage.base import FileInfo, LogStore
from pyspark_delta.kernel.storage.faulty import (
    Crashed,
    Fault,
    FaultRule,
    FaultStore,
    RuleSchedule,
    SeededSchedule,
)
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.objects import ObjectStore
from pyspark_delta.kernel.storage.relative import check_relative
from pyspark_delta.kernel.storage.resolve import (
    Location,
    canonical_uri,
    parse_location,
    store_for,
)
from pyspark_delta.kernel.storage.uris import (
    ActionPath,
    decode_path,
    encode_path,
    resolve_action_path,
)

__all__ = [
    "ActionPath",
    "Crashed",
    "Fault",
    "FaultRule",
    "FaultStore",
    "FileInfo",
    "LocalStore",
    "Location",
    "LogStore",
    "MemoryStore",
    "ObjectStore",
    "RuleSchedule",
    "SeededSchedule",
    "canonical_uri",
    "check_relative",
    "decode_path",
    "encode_path",
    "parse_location",
    "resolve_action_path",
    "store_for",
]
