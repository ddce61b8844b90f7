"""The jobs of a MERGE: one join finds the rows, and data and change files are written from them.

The join runs once; its rows are kept, on disk where memory is short, and all later jobs read them
from there.  So a source that gives other rows each time is read once.  A MERGE that only inserts
writes straight from its join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.kernel.ops.rewrite_plan import FileChanges
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, StructType
from pyspark_delta.kernel.scan.predicates.tree import FALSE, Predicate, conjunction
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.dml.files import (
    CHANGE_TYPE,
    DmlFiles,
    Stopwatch,
    check_conserved,
    typed_failures,
)
from pyspark_delta.spark.files.stats import moved_identity
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES, messages
from pyspark_delta.spark.jvm.plans.frames import observed, release, release_broadcasts, running_once
from pyspark_delta.spark.jvm.plans.merge import ClauseKind
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.merge.join import ACTION, MergeRows, arranged, gathered, is_one_of
from pyspark_delta.spark.merge.names import resolve_kind
from pyspark_delta.spark.merge.pruning import key_predicate
from pyspark_delta.spark.merge.request import MergeSource, RowCounts, of_kind, tolerates_duplicates
from pyspark_delta.spark.rules.alignment import aligned, column
from pyspark_delta.spark.scan.frame import (
    FILE,
    ROW,
    LocatedRows,
    TouchedFile,
    located_rows,
    touched_rows,
)
from pyspark_delta.spark.scan.source import SnapshotSource

SOURCE_ROWS = "__delta_source_rows"
"""The name of the metric that counts the rows of the source while the join reads them."""
_Part = tuple[DataFrame, tuple[ClauseKind, ...]]
"""Rows of a MERGE, and the kinds of clauses that they are for."""
_TOUCHED_COUNT = "touched"
_LOST_BLOCK = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


def _change_rows(rows: MergeRows, parts: Sequence[_Part], has_duplicates: bool) -> DataFrame:
    """Rows for the change feed, before and after their change.

    With `has_duplicates` a deleted row may be in a part more than once, and is recorded once.
    """
    schema = rows.resolution.schema
    new = [quoted_name(f.name) for f in schema]
    old = [f"{rows.old_name(f)} AS {quoted_name(f.name)}" for f in schema]
    changes = []
    for frame, kinds in parts:
        clauses = rows.resolution.of_kind(*kinds)
        updates, deletes, inserts = (
            [n for n, each in clauses.items() if each.clause.action == action]
            for action in ("update", "delete", "insert")
        )
        if updates or deletes:
            before = frame.where(is_one_of([*updates, *deletes]))
            if has_duplicates:
                before = before.dropDuplicates([FILE, ROW])
            kind = f"IF({is_one_of(deletes)}, 'delete', 'update_preimage') AS {CHANGE_TYPE}"
            changes.append(before.selectExpr(*old, kind))
        if updates or inserts:
            after = frame.where(is_one_of([*updates, *inserts]))
            kind = f"IF({is_one_of(inserts)}, 'insert', 'update_postimage') AS {CHANGE_TYPE}"
            changes.append(after.selectExpr(*new, kind))
    return reduce(DataFrame.union, changes)


class RowsLostError(OperationNotAllowedError):
    """Kept rows are lost, together with the executor that had them: the MERGE can be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Files and counts of a MERGE before its commit."""

    counts: RowCounts
    changes: FileChanges = field(default_factory=FileChanges)
    written: tuple[AddFile, ...] = ()
    feed: tuple[AddCDCFile, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row changed."""
        return not (self.changes.files or self.written)


class MergeJobs:
    """The jobs of one MERGE, after its names are resolved and the table's schema is settled.

    `rows` are over the source as the join reads it, which counts its rows; `source` is the source
    itself.
    """

    def __init__(
        self,
        dml: DmlFiles,
        rows: MergeRows,
        source: MergeSource,
        target: LocatedRows,
        times: Stopwatch,
    ) -> None:
        self._dml = dml
        self._jvm = dml.jvm
        self._txn = dml.txn
        self._rows = rows
        self._names = rows.names
        self._source = source
        self._target = target
        self._clauses = rows.names.request.clauses
        self._times = times
        self._joined: list[DataFrame] = []
        self._kept: list[DataFrame] = []
        self._keys: Predicate | None = None

    def insert_only(self) -> Merged:
        """Append the source rows without a match, by one job."""
        frame = self._rows.inserted(is_small=self._source.is_small)
        with _typed_errors():
            rows = running_once(self._jvm, frame)
            # The numbers of identity columns depend on the partition of a row: no shuffle.
            spread = rows if self._numbered else arranged(self._names, rows, None)
            written = self._dml.write(self._columns(spread))
        # The matching rows are not known: without one of them a source row would be inserted.
        self._record_reads(by_row=False)
        self._move_marks(written)
        self._times.done("rewrite")
        number = next(iter(self._rows.resolution.of_kind("not matched")))
        counts = self._counts({number: _num_rows(written)}, frame)
        release_broadcasts(frame)
        return Merged(counts=counts, written=tuple(written))

    def run(self) -> Merged:
        """Find the rows that change, and write their files."""
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
        parts: list[_Part] = [(kept, kinds)]
        touched = list(matches.touched)
        if splits:
            parts.append((self._rest(kept, matches), ("not matched",)))
        if resolution.of_kind("not matched by source"):
            alone, rows_alone, counted = self._alone(matches)
            touched += alone
            by_clause |= counted
            parts.append((rows_alone, ("not matched by source",)))
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
            # The number of inserted rows is known from the written files only.
            num_inserted = _num_rows(written) - counts.num_updated - changes.num_copied
            number = next(iter(resolution.of_kind("not matched")))
            counts = replace(counts, by_clause={**counts.by_clause, number: num_inserted})
        expected = counts.num_updated + counts.num_inserted + changes.num_copied
        check_conserved("MERGE", written=written, expected=expected)
        feed = self._feed(parts, counts, has_duplicates=matches.has_duplicates)
        self._times.done("rewrite")
        return Merged(counts=counts, changes=changes, written=tuple(written), feed=tuple(feed))

    def _keep(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame, computed by the first job over them and then kept."""
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
        counted = {_TOUCHED_COUNT: f"{ACTION} >= 0", **_clause_counts(clauses)}
        with _typed_errors():
            # An outer join broadcasts a small target to the source's rows.
            is_outer = any(clauses[number].clause.action == "insert" for number in clauses)
            # The numbers of identity columns depend on the partition of a row: no shuffle.
            stays = is_outer and bool(self._numbered)
            rows = kept if stays else gathered(self._names, kept, scans=not is_outer)
            found = touched_rows(rows, pa.concat_tables([files, files]), counted)
        matches = _Matches(
            touched=tuple(each for each in found.files if each.counts[_TOUCHED_COUNT]),
            untouched=tuple(each for each in found.files if not each.counts[_TOUCHED_COUNT]),
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
        """The source rows without a match, to be inserted: a small join with the matching pairs."""
        names = replace(self._names, source=self._source.frame, target=self._keys_of(kept))
        resolution = resolve_kind(names, "not matched", self._rows.resolution.schema)
        num_pairs = sum(each.num_met for each in matches.all_files)
        frame = self._rows.inserted(resolution, num_pairs=num_pairs)
        # The files and the change feed must have the same values.
        return self._keep(frame) if self._dml.writes_changes or self._numbered else frame

    def _keys_of(self, kept: DataFrame) -> DataFrame:
        """The columns of the target that the condition names, by their own names.

        Spark pads CHAR values in comparisons, and needs the metadata of their columns for that.
        """
        columns = []
        for name, key in self._rows.keys.items():
            metadata = self._names.target.schema[name].metadata.items()
            chars = {key: text for key, text in metadata if key == CHAR_VARCHAR_KEY}
            columns.append(column(key).alias(name, metadata=chars))
        return kept.select(*columns)

    def _alone(
        self, matches: _Matches
    ) -> tuple[tuple[TouchedFile, ...], DataFrame, dict[int, int]]:
        """The target rows without a match, for which there is a clause: the rest of the files."""
        matched = self._dml.plan(matches.all_files, with_vectors=True)
        without = {each.file.path: each.gone for each in matched.files}
        files = self._target.files
        rest = located_rows(self._jvm, self._txn, files, without=without)
        names = replace(self._names, target=rest.frame)
        resolution = resolve_kind(names, "not matched by source", self._rows.resolution.schema)
        kept = self._keep(self._rows.alone(resolution))
        clauses = resolution.of_kind("not matched by source")
        with _typed_errors():
            found = touched_rows(
                gathered(self._names, kept, scans=True), files, _clause_counts(clauses)
            )
        return found.files, kept, {number: found.total(str(number)) for number in clauses}

    def _record_reads(self, *, by_row: bool = True) -> None:
        """Record in the transaction what the join read of the target.

        A clause depends on its own row and its match alone.  So the commit conflicts with changes
        to rows that match, where they are known (`by_row`), and with new rows that would match.
        The keys of the source are collected only when a conflict depends on them.
        """
        if of_kind(self._clauses, "not matched by source"):
            self._txn.filter_files(by_row=True)
            return
        filters = dict.fromkeys(
            read.filter
            for source in sources_in(self._target.frame)
            if isinstance(source, SnapshotSource)
            for read in source.reads
        )
        if not filters:
            # Not a blind append, even where Spark's optimizer saw that no row can match.
            self._txn.filter_files(FALSE, by_row=by_row)
        taken = self._rows.resolution.taken
        for predicate in filters:
            read = conjunction((predicate, taken))
            self._txn.filter_files(read, by_row=by_row, narrow=self._matching_keys)

    def _matching_keys(self) -> Predicate:
        snapshot = self._txn.snapshot
        assert snapshot is not None
        if self._keys is None:
            self._keys = key_predicate(self._jvm, self._rows.resolution, self._source, snapshot)
        return self._keys

    def _counts(self, by_clause: Mapping[int, int], frame: DataFrame) -> RowCounts:
        num_source = observed(frame, SOURCE_ROWS)
        return RowCounts(clauses=self._clauses, by_clause=by_clause, num_source=num_source)

    def _write(
        self, parts: Sequence[_Part], changes: FileChanges, counts: RowCounts, *, splits: bool
    ) -> list[AddFile]:
        numbered = self._numbered
        written: list[AddFile] = []
        if numbered:
            new = next(frame for frame, kinds in parts if "not matched" in kinds)
            written += self._dml.write(self._columns(new.where(is_one_of(numbered))))
            self._move_marks(written)
        frames = []
        for frame, kinds in parts:
            clauses = self._rows.resolution.of_kind(*kinds)
            numbers = [n for n in self._rows.written(clauses) if n not in numbered]
            # It is not known yet whether there are source rows without a match.
            is_open = splits and kinds == ("not matched",)
            if numbers and (is_open or any(counts.by_clause.get(n) for n in numbers)):
                frames.append(self._columns(frame.where(is_one_of(numbers))))
        copied = self._dml.copied_rows(changes)
        if copied is not None:
            frames.append(aligned(copied, self._stored_columns))
        if frames:
            num_rows = counts.num_updated + counts.num_inserted + changes.num_copied
            if splits:
                num_rows += counts.num_source or 0
            rows = reduce(DataFrame.union, frames)
            written += self._dml.write(arranged(self._names, rows, num_rows, changes))
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
        """Move the high-water marks of identity columns to the numbers in files just written."""
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
        return StructType((*self._rows.resolution.schema, *self._dml.hidden))

    def _columns(self, rows: DataFrame) -> DataFrame:
        # By text: a column of PySpark's takes a dozen calls into the JVM.
        return rows.selectExpr(*map(quoted_name, self._stored_columns.names))

    def _feed(
        self, parts: Sequence[_Part], counts: RowCounts, *, has_duplicates: bool
    ) -> list[AddCDCFile]:
        """Files for the change feed; none where added files are the whole change."""
        if not self._dml.writes_changes or not counts.num_updated + counts.num_deleted:
            return []
        rows = _change_rows(self._rows, parts, has_duplicates)
        total = 2 * counts.num_updated + counts.num_deleted + counts.num_inserted
        with _typed_errors():
            return self._dml.write_changes(arranged(self._names, rows, total))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matches:
    """The rows that a source row matches, by file: with a clause for them, and without."""

    touched: tuple[TouchedFile, ...] = ()
    untouched: tuple[TouchedFile, ...] = ()
    has_duplicates: bool = False

    @property
    def all_files(self) -> tuple[TouchedFile, ...]:
        """Every file with a matching row, once."""
        return _together([*self.touched, *self.untouched])


def _clause_counts(clauses: Iterable[int]) -> dict[str, str]:
    """A condition for each clause, by which its rows are counted."""
    return {str(number): f"{ACTION} = {number}" for number in clauses}


def _num_rows(files: Iterable[AddFile]) -> int:
    return sum(file.num_records or 0 for file in files)


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
    """Raise our errors for rows that a job refuses, or that are lost with an executor."""
    try:
        with typed_failures():
            yield
    except JAVA_FAILURES as error:
        if any(_LOST_BLOCK in message for message in messages(error)):
            raise RowsLostError("DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY") from error
        raise
