"""Records inside actions: deletion vector descriptors, formats, jobs, notebooks.

>>> DeletionVectorDescriptor(
...     storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=40, cardinality=6
... ).unique_id
'uab@1'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_delta.kernel.protocol.codec import Json, MalformedRecordError, Record

StringMap = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorDescriptor(Record):
    """The location of a file's deletion vector, and its number of deleted rows."""

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_in_bytes: int
    cardinality: int
    max_row_index: int | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        # 32 bits each, as every implementation stores them.
        for name in ("offset", "size_in_bytes"):
            number = getattr(self, name)
            if number is not None and not -(2**31) <= number < 2**31:
                raise MalformedRecordError(f"the vector's {name} does not fit 32 bits")

    @property
    def unique_id(self) -> str:
        """The id that distinguishes vectors of one file: a part of the file's key in replay."""
        where = self.storage_type + self.path_or_inline_dv
        return where if self.offset is None else f"{where}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format(Record):
    """The encoding of the data files; Parquet is the only one that can be written.

    >>> Format().provider, Format().options
    ('parquet', {})
    """

    provider: str = "parquet"
    options: StringMap = field(default_factory=dict, hash=False)
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo(Record):
    """The scheduled job that made a commit."""

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

    notebook_id: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)
