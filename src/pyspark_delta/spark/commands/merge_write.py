"""The jobs of a MERGE: rows found by one join, files and change files written from what it gave.

The join runs once; its rows are kept, on disk where memory is short, and everything after reads
them from there.  So a source that gives other rows each time is asked once.  A MERGE that only
inserts writes straight from its join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, StructType
from pyspark_delta.kernel.scan.predicates import FALSE, Predicate, conjunction
from pyspark_delta.spark.column_alignment import aligned, column
from pyspark_delta.spark.commands.dml_files import (
    DmlFiles,
    FileChanges,
    check_conserved,
    typed_failures,
)
from pyspark_delta.spark.commands.merge_clauses import ClauseKind, of_kind, tolerates_duplicates
from pyspark_delta.spark.commands.merge_feed import change_rows
from pyspark_delta.spark.commands.merge_history import MergeTimes, RowCounts
from pyspark_delta.spark.commands.merge_join import ACTION, MergeRows, is_one_of
from pyspark_delta.spark.commands.merge_layout import MergeLayout
from pyspark_delta.spark.commands.merge_pruning import key_predicate
from pyspark_delta.spark.commands.merge_request import MergeRequest
from pyspark_delta.spark.commands.merge_resolution import (
    MergeNames,
    resolve_alone,
    resolve_inserts,
)
from pyspark_delta.spark.commands.merge_source import MergeSource
from pyspark_delta.spark.identity_values import moved_identity
from pyspark_delta.spark.jvm.broadcasts import release_broadcasts
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES, messages
from pyspark_delta.spark.jvm.file_index import sources_in
from pyspark_delta.spark.jvm.frame_facts import observed, release, running_once
from pyspark_delta.spark.jvm.table_plan import quoted_name
from pyspark_delta.spark.located_rows import LocatedRows, located_rows
from pyspark_delta.spark.snapshot_source import SnapshotSource
from pyspark_delta.spark.touched_rows import TouchedFile, touched_rows

SOURCE_ROWS = "__delta_source_rows"
"""Under which name the rows of the source are counted while the join reads them."""

_TOUCHED = "touched"
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


class RowsLostError(OperationNotAllowedError):
    """Rows that were kept are gone, with the executor that kept them: the MERGE can be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a MERGE has done to files and rows; nothing of it is committed."""

    counts: RowCounts
    changes: FileChanges = field(default_factory=FileChanges)
    written: tuple[AddFile, ...] = ()
    feed: tuple[AddCDCFile, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row changed."""
        return not (self.changes.files or self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matches:
    """The rows of files that a source row matches, by what becomes of them."""

    touched: tuple[TouchedFile, ...] = ()
    untouched: tuple[TouchedFile, ...] = ()
    has_duplicates: bool = False

    @property
    def all_files(self) -> tuple[TouchedFile, ...]:
        """Every file of which some row matches, once."""
        return _together([*self.touched, *self.untouched])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Rows of a MERGE, and the kinds of clauses that they are for."""

    frame: DataFrame = field(hash=False)
    kinds: tuple[ClauseKind, ...]


class MergeJobs:
    """The jobs of one MERGE, whose names are looked up and whose table is defined.

    `names` are over the source as the join reads it, which counts its rows; `source` is the source
    itself.
    """

    def __init__(
        self,
        dml: DmlFiles,
        rows: MergeRows,
        names: MergeNames,
        source: MergeSource,
        target: LocatedRows,
        request: MergeRequest,
        layout: MergeLayout,
        times: MergeTimes,
    ) -> None:
        self._dml = dml
        self._jvm = dml.jvm
        self._txn = dml.txn
        self._rows = rows
        self._names = names
        self._source = source
        self._target = target
        self._request = request
        self._clauses = request.clauses
        self._layout = layout
        self._times = times
        self._joined: list[DataFrame] = []
        self._kept: list[DataFrame] = []
        self._keys: Predicate | None = None

    def insert_only(self) -> Merged:
        """Append the source rows that match nothing, by one job."""
        frame = self._rows.inserted(is_small=self._source.is_small)
        with _typed_errors():
            rows = running_once(self._jvm, frame)
            # Numbers of identity columns are given out where rows are: these must stay there.
            spread = rows if self._numbered else self._layout.arranged(rows, None)
            written = self._dml.write(self._columns(spread))
        # Which rows matched is not known: one that goes might let a source row in.
        self._record_reads(by_row=False)
        self._move_marks(written)
        self._times.done("rewrite")
        number = next(iter(self._rows.resolution.of_kind("not matched")))
        inserted = sum(file.num_records or 0 for file in written)
        counts = self._counts({number: inserted}, frame)
        release_broadcasts(frame)
        return Merged(counts=counts, written=tuple(written))

    def run(self) -> Merged:
        """Find the rows that change, and write what must be written."""
        try:
            merged = self._run()
        finally:
            for frame in self._kept:
                release(frame)
        for frame in self._joined:
            release_broadcasts(frame)
        return merged

    def _run(self) -> Merged:
        resolution = self._rows.resolution
        inserts = bool(resolution.of_kind("not matched"))
        splits = inserts and self._source.is_small
        num_files = self._target.files.num_rows
        if splits or not inserts:
            joined = self._rows.matching(num_files, is_small=self._source.is_small)
        else:
            joined = self._rows.joined(num_files)
        kept = self._keep(joined)
        kinds: tuple[ClauseKind, ...] = ("matched",) if splits else ("matched", "not matched")
        matches, by_clause = self._matches(kept, kinds)
        parts, touched = [_Part(frame=kept, kinds=kinds)], list(matches.touched)
        if splits:
            parts.append(_Part(frame=self._rest(kept, matches), kinds=("not matched",)))
        if resolution.of_kind("not matched by source"):
            alone, rows_alone, counted = self._alone(matches)
            touched += alone
            by_clause |= counted
            parts.append(_Part(frame=rows_alone, kinds=("not matched by source",)))
        self._record_reads()
        if inserts:
            needed = {each.file.path: each.rows for each in matches.untouched}
            self._txn.touch_rows({}, needed=needed)
        self._times.done("scan")
        counts = self._counts(by_clause, joined)
        with_vectors = self._dml.uses_vectors("merge")
        changes = self._dml.plan(_together(touched), with_vectors=with_vectors)
        with _typed_errors():
            written = self._write(parts, changes, counts, splits=splits)
        if splits:
            counts = self._with_inserted(counts, written, changes)
        expected = counts.num_updated + counts.num_inserted + changes.num_copied
        check_conserved("MERGE", written=written, expected=expected)
        feed = self._feed(parts, counts, has_duplicates=matches.has_duplicates)
        self._times.done("rewrite")
        return Merged(counts=counts, changes=changes, written=tuple(written), feed=tuple(feed))

    def _keep(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame, which are computed by the first job over them and then kept."""
        with _typed_errors():
            kept = frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
        self._joined.append(frame)
        self._kept.append(kept)
        return kept

    def _matches(
        self, kept: DataFrame, kinds: Sequence[ClauseKind]
    ) -> tuple[_Matches, dict[int, int]]:
        """Run the join; a typed error when a target row matches too many source rows."""
        files = self._target.files
        clauses = self._rows.resolution.of_kind(*kinds)
        counted = {_TOUCHED: f"{ACTION} >= 0", **_counted(clauses)}
        with _typed_errors():
            # An outer join brings a small target to the source's rows.
            is_outer = any(clauses[number].clause.action == "insert" for number in clauses)
            # Numbers of identity columns are given out where rows are: these must stay there.
            stays = is_outer and bool(self._numbered)
            rows = kept if stays else self._layout.gathered(kept, scans=not is_outer)
            found = touched_rows(rows, pa.concat_tables([files, files]), counted)
        matches = _Matches(
            touched=tuple(each for each in found.files if each.counts[_TOUCHED]),
            untouched=tuple(each for each in found.files if not each.counts[_TOUCHED]),
        )
        by_clause = {number: found.total(str(number)) for number in clauses}
        met = sum(each.num_met for each in found.files)
        if met == sum(each.rows.cardinality for each in matches.all_files):
            return matches, by_clause
        if not tolerates_duplicates(self._clauses):
            raise OperationNotAllowedError("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE")
        (number,) = self._rows.resolution.of_kind("matched")
        by_clause[number] = sum(each.rows.cardinality for each in matches.touched)
        return replace(matches, has_duplicates=True), by_clause

    def _rest(self, kept: DataFrame, matches: _Matches) -> DataFrame:
        """The source rows that are in no pair, to be inserted: a small join with the pairs."""
        names = replace(self._names, source=self._source.frame, target=self._keys_of(kept))
        condition = self._request.condition
        resolution = resolve_inserts(names, condition, self._clauses, self._rows.resolution.schema)
        num_pairs = sum(each.num_met for each in matches.all_files)
        frame = self._rows.inserted(resolution, num_pairs=num_pairs)
        # The files and the change feed tell of the same values.
        return self._keep(frame) if self._dml.writes_changes or self._numbered else frame

    def _keys_of(self, kept: DataFrame) -> DataFrame:
        """The columns of the target that the condition names, by their own names.

        Spark pads CHAR values that are compared, and knows them by the metadata of their columns.
        """
        schema = self._names.target.schema
        told = {
            name: {
                key: text for key, text in schema[name].metadata.items() if key == CHAR_VARCHAR_KEY
            }
            for name in self._rows.keys
        }
        keys = self._rows.keys.items()
        return kept.select(*[column(key).alias(name, metadata=told[name]) for name, key in keys])

    def _alone(
        self, matches: _Matches
    ) -> tuple[tuple[TouchedFile, ...], DataFrame, dict[int, int]]:
        """The rows that no source row matches and that a clause is for: all others of the files."""
        matched = self._dml.plan(matches.all_files, with_vectors=True)
        without = {each.file.path: each.gone for each in matched.files}
        files = self._target.files
        rest = located_rows(self._jvm, self._txn, files, without=without)
        names = replace(self._names, target=rest.frame)
        resolution = resolve_alone(names, self._clauses, self._rows.resolution.schema)
        kept = self._keep(self._rows.alone(resolution))
        clauses = resolution.of_kind("not matched by source")
        with _typed_errors():
            found = touched_rows(self._layout.gathered(kept, scans=True), files, _counted(clauses))
        return found.files, kept, {number: found.total(str(number)) for number in clauses}

    def _record_reads(self, *, by_row: bool = True) -> None:
        """Tell the transaction what the join read of the target.

        Each row is judged by itself, whatever the source; so the commit depends on the rows that
        match, where they are known (`by_row`), and on none like them being added.  Which keys the
        source has is found out when a conflict hangs on it.
        """
        if of_kind(self._clauses, "not matched by source"):
            self._txn.filter_files(by_row=True)
            return
        asked = dict.fromkeys(
            read.filter
            for source in sources_in(self._target.frame)
            if isinstance(source, SnapshotSource)
            for read in source.reads
        )
        if not asked:
            # No blind append, even where Spark saw that no row can match.
            self._txn.filter_files(FALSE, by_row=by_row)
        taken = self._rows.resolution.taken
        for predicate in asked:
            read = conjunction((predicate, taken))
            self._txn.filter_files(read, by_row=by_row, narrow=self._matching_keys)

    def _matching_keys(self) -> Predicate:
        snapshot = self._txn.snapshot
        assert snapshot is not None
        if self._keys is None:
            self._keys = key_predicate(self._jvm, self._rows.resolution, self._source, snapshot)
        return self._keys

    def _counts(self, by_clause: Mapping[int, int], frame: DataFrame) -> RowCounts:
        return RowCounts(
            by_clause=by_clause,
            clauses=self._rows.resolution.clauses,
            num_source=observed(frame, SOURCE_ROWS),
        )

    def _with_inserted(
        self, counts: RowCounts, written: Sequence[AddFile], changes: FileChanges
    ) -> RowCounts:
        """The counts with rows that nobody counted before they were in files."""
        found = sum(file.num_records or 0 for file in written)
        number = next(iter(self._rows.resolution.of_kind("not matched")))
        inserted = found - counts.num_updated - changes.num_copied
        return replace(counts, by_clause={**counts.by_clause, number: inserted})

    def _write(
        self, parts: Sequence[_Part], changes: FileChanges, counts: RowCounts, *, splits: bool
    ) -> list[AddFile]:
        """Write updated and inserted rows, and those of rewritten files that stay."""
        numbered = self._numbered
        written: list[AddFile] = []
        if numbered:
            new = next(part for part in parts if "not matched" in part.kinds)
            rows = new.frame.where(is_one_of(numbered))
            written += self._dml.write(self._columns(rows))
            self._move_marks(written)
        frames = []
        for part in parts:
            clauses = self._rows.resolution.of_kind(*part.kinds)
            numbers = [n for n in self._rows.written(clauses) if n not in numbered]
            # Of rows that match nothing, it is not known yet whether there are any.
            is_open = splits and part.kinds == ("not matched",)
            if numbers and (is_open or any(counts.by_clause.get(n) for n in numbers)):
                frames.append(self._columns(part.frame.where(is_one_of(numbers))))
        copied = self._dml.copied_rows(changes)
        if copied is not None:
            frames.append(aligned(copied, self._stored_columns))
        if frames:
            num_new = counts.num_updated + counts.num_inserted
            if splits:
                num_new += counts.num_source or 0
            rows = self._layout.arranged(_union(frames), num_new + changes.num_copied, changes)
            written += self._dml.write(rows)
        return written

    @property
    def _numbered(self) -> list[int]:
        """The clauses that insert rows whose identity columns get their numbers here."""
        schema = self._rows.resolution.schema
        return [
            number
            for number, each in self._rows.resolution.of_kind("not matched").items()
            if any(
                text is None and "delta.identity.start" in schema[name].metadata
                for name, text in each.columns.items()
            )
        ]

    def _move_marks(self, written: Sequence[AddFile]) -> None:
        """Let identity columns go on behind the numbers in files just written."""
        if not self._numbered or not written:
            return
        clauses = self._rows.resolution.clauses
        given = [
            name
            for name in self._rows.resolution.schema.names
            if all(clauses[number].columns[name] is not None for number in self._numbered)
        ]
        moved = moved_identity(self._txn.metadata, written, given=given)
        if moved is not None:
            self._txn.move_identity_marks(moved)

    @property
    def _stored_columns(self) -> StructType:
        """The columns that files get."""
        return StructType((*self._rows.resolution.schema, *self._dml.hidden))

    def _columns(self, rows: DataFrame) -> DataFrame:
        # By text: a column of PySpark's takes a dozen calls.
        return rows.selectExpr(*map(quoted_name, self._stored_columns.names))

    def _feed(
        self, parts: Sequence[_Part], counts: RowCounts, *, has_duplicates: bool
    ) -> list[AddCDCFile]:
        """Rows before and after for the change feed; none where added files tell it all."""
        if not self._dml.writes_changes or not counts.num_updated + counts.num_deleted:
            return []
        rows = change_rows(self._rows, [(part.frame, part.kinds) for part in parts], has_duplicates)
        total = 2 * counts.num_updated + counts.num_deleted + counts.num_inserted
        with _typed_errors():
            return self._dml.write_changes(self._layout.arranged(rows, total))


def _counted(clauses: Iterable[int]) -> dict[str, str]:
    """How many rows each clause is for, as conditions to count."""
    return {str(number): f"{ACTION} = {number}" for number in clauses}


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.union, frames)


def _together(files: Sequence[TouchedFile]) -> tuple[TouchedFile, ...]:
    """The same rows, with each file once."""
    found: dict[str, TouchedFile] = {}
    for each in files:
        known = found.get(each.file.path)
        if known is not None:
            rows: DeletionVector = known.rows.union(each.rows)
            each = replace(known, rows=rows, num_met=known.num_met + each.num_met)
        found[each.file.path] = each
    return tuple(found.values())


@contextmanager
def _typed_errors() -> Iterator[None]:
    """Our errors for rows that a job refuses, or that a task has lost."""
    try:
        with typed_failures():
            yield
    except JAVA_FAILURES as error:
        if any(_LOST in message for message in messages(error)):
            raise RowsLostError("DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY") from error
        raise
