"""Names of the files in `_delta_log/`.

A log path is text: nothing here touches storage.  PROTOCOL.md, "Delta Log Entries", "Checkpoints",
"Log Compaction Files" and "Version Checksum File", defines the grammar.

>>> commit_path(7)
'_delta_log/00000000000000000007.json'
>>> parse_log_name("00000000000000000010.checkpoint.0000000002.0000000003.parquet").part
2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

LOG_DIRECTORY = "_delta_log"
SIDECAR_DIRECTORY = "_delta_log/_sidecars"
LAST_CHECKPOINT = "_delta_log/_last_checkpoint"
MAX_VERSION = 2**63 - 1


class LogFileKind(Enum):
    """The kind of a file in the log directory."""

    COMMIT = "commit"
    CLASSIC_CHECKPOINT = "classic checkpoint"
    MULTIPART_CHECKPOINT = "multi-part checkpoint"
    UUID_CHECKPOINT = "uuid checkpoint"
    COMPACTED = "log compaction"
    CHECKSUM = "version checksum"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogName:
    """The parsed name of a file in the log directory."""

    kind: LogFileKind
    version: int
    end_version: int | None = None  # of a log compaction
    part: int | None = None  # of a multi-part checkpoint, from 1
    parts: int | None = None
    uuid: str | None = None
    format: str | None = None  # of a uuid checkpoint: json or parquet


_VERSION_DIGITS = 20
_COMMIT_NAME_LENGTH = _VERSION_DIGITS + len(".json")
_V = rf"(?P<version>[0-9]{{{_VERSION_DIGITS}}})"
_GRAMMAR: Mapping[LogFileKind, re.Pattern[str]] = {
    LogFileKind.COMMIT: re.compile(rf"{_V}\.json"),
    LogFileKind.CHECKSUM: re.compile(rf"{_V}\.crc"),
    LogFileKind.CLASSIC_CHECKPOINT: re.compile(rf"{_V}\.checkpoint\.parquet"),
    LogFileKind.MULTIPART_CHECKPOINT: re.compile(
        rf"{_V}\.checkpoint\.(?P<part>[0-9]{{10}})\.(?P<parts>[0-9]{{10}})\.parquet"
    ),
    LogFileKind.UUID_CHECKPOINT: re.compile(
        rf"{_V}\.checkpoint\.(?P<uuid>[0-9a-fA-F-]{{36}})\.(?P<format>json|parquet)"
    ),
    LogFileKind.COMPACTED: re.compile(rf"{_V}\.(?P<end_version>[0-9]{{20}})\.compacted\.json"),
}


def parse_log_name(name: str) -> LogName | None:
    """The parsed `name`, or None when the protocol gives it no meaning."""
    # Nearly all files of a long log are commits, and each listing parses their names.
    if len(name) == _COMMIT_NAME_LENGTH and name.endswith(".json") and name.isascii():
        digits = name[:_VERSION_DIGITS]
        if digits.isdigit() and int(digits) <= MAX_VERSION:
            return LogName(kind=LogFileKind.COMMIT, version=int(digits))
    for kind, pattern in _GRAMMAR.items():
        if match := pattern.fullmatch(name):
            groups = match.groupdict()
            numbers = {key: int(groups[key]) for key in groups if key not in ("uuid", "format")}
            # Twenty digits can spell more than a version can hold: such a file is a stray.
            if any(number > MAX_VERSION for number in numbers.values()):
                return None
            return LogName(
                kind=kind, uuid=groups.get("uuid"), format=groups.get("format"), **numbers
            )
    return None


def commit_path(version: int) -> str:
    """A commit, from the table's root."""
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def checksum_path(version: int) -> str:
    """A version checksum, from the table's root."""
    return f"{LOG_DIRECTORY}/{version:020d}.crc"


def classic_checkpoint_path(version: int) -> str:
    """A classic checkpoint, from the table's root."""
    return f"{LOG_DIRECTORY}/{version:020d}.checkpoint.parquet"


def multipart_checkpoint_path(version: int, part: int, parts: int) -> str:
    """Part `part` (from 1) of a multi-part checkpoint, from the table's root."""
    return f"{LOG_DIRECTORY}/{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def uuid_checkpoint_path(version: int, uuid: str, file_format: str) -> str:
    """A V2 checkpoint with a UUID in its name, from the table's root."""
    return f"{LOG_DIRECTORY}/{version:020d}.checkpoint.{uuid}.{file_format}"


def sidecar_path(name: str) -> str:
    """A sidecar, from the table's root."""
    return f"{SIDECAR_DIRECTORY}/{name}"


def compacted_path(start_version: int, end_version: int) -> str:
    """A log compaction of both versions and those between, from the table's root."""
    return f"{LOG_DIRECTORY}/{start_version:020d}.{end_version:020d}.compacted.json"
