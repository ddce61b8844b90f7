"""The records inside actions: deletion vector descriptors, formats, jobs, notebooks.

>>> DeletionVectorDescriptor(
...     storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=40, cardinality=6
... ).unique_id
'uab@1'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark_delta.kernel.protocol.codec import (
    Field,
    Json,
    MalformedRecordError,
    Record,
    frozen_map,
    integer,
    string_map,
    text,
)

StringMap = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorDescriptor(Record):
    """Where a file's deletion vector is, and how many rows it takes away."""

    FIELDS: ClassVar = (
        Field("storageType", "storage_type", text, required=True),
        Field("pathOrInlineDv", "path_or_inline_dv", text, required=True),
        Field("offset", "offset", integer),
        Field("sizeInBytes", "size_in_bytes", integer, required=True),
        Field("cardinality", "cardinality", integer, required=True),
        Field("maxRowIndex", "max_row_index", integer),
    )

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_in_bytes: int
    cardinality: int
    max_row_index: int | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        # 32 bits each: what every implementation stores them in.
        for name in ("offset", "size_in_bytes"):
            number = getattr(self, name)
            if number is not None and not -(2**31) <= number < 2**31:
                raise MalformedRecordError(f"the vector's {name} does not fit 32 bits")

    @property
    def unique_id(self) -> str:
        """What tells two vectors of one file apart: half of a file's key in replay."""
        where = self.storage_type + self.path_or_inline_dv
        return where if self.offset is None else f"{where}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format(Record):
    """The encoding of the data files; Parquet is the only one that can be written.

    >>> Format().provider, Format().options
    ('parquet', {})
    """

    FIELDS: ClassVar = (
        Field("provider", "provider", text),
        Field("options", "options", string_map, frozen_map),
    )

    provider: str = "parquet"
    options: StringMap = field(default_factory=dict, hash=False)
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo(Record):
    """The scheduled job that made a commit."""

    FIELDS: ClassVar = (
        Field("jobId", "job_id", text),
        Field("jobName", "job_name", text),
        Field("jobRunId", "job_run_id", text),
        Field("runId", "run_id", text),
        Field("jobOwnerId", "job_owner_id", text),
        Field("triggerType", "trigger_type", text),
    )

    job_id: str | None = None
    job_name: str | None = None
    job_run_id: str | None = None
    run_id: str | None = None
    job_owner_id: str | None = None
    trigger_type: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookInfo(Record):
    """The notebook that made a commit."""

    FIELDS: ClassVar = (Field("notebookId", "notebook_id", text),)

    notebook_id: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)
