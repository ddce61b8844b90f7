"""Version checksums: their text, the sums of a version, and the sums of one commit more."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.kernel.log.checksum import (
    MOST_FILES,
    VersionChecksum,
    advance_checksum,
    checksum_of,
    format_checksum,
    mismatches,
    parse_checksum,
    read_checksum,
    write_checksum,
)
from pyspark_delta.kernel.log.checksum_histogram import (
    DELETED_RECORD_BINS,
    EMPTY_FILE_SIZES,
    FILE_SIZE_BINS,
    deleted_records_histogram,
    file_size_histogram,
)
from pyspark_delta.kernel.log.frames.file_actions import add_table
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.paths import checksum_path
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import add, metadata, remove

ROOT = "memory://t/t%C3%A4%20ble%20100%25"
VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)


def checksum(*adds: AddFile, protocol: Protocol | None = None, **more: object) -> VersionChecksum:
    return checksum_of(
        add_table(adds),
        protocol=protocol or Protocol(),
        metadata=metadata(),
        transactions=more.pop("transactions", ()),  # type: ignore[arg-type]
        domains=more.pop("domains", ()),  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def advanced(
    previous: VersionChecksum | None,
    *actions: Action,
    operation: str | None = None,
) -> VersionChecksum | None:
    files = (AddFile, RemoveFile)
    return advance_checksum(
        previous,
        adds=[a for a in actions if isinstance(a, AddFile)],
        removes=[a for a in actions if isinstance(a, RemoveFile)],
        others=[a for a in actions if not isinstance(a, files)],
        root_uri=ROOT,
        operation=operation,
    )


def test_the_text_has_delta_sparks_keys_in_its_order() -> None:
    found = checksum(
        add("a", size=5),
        add("b", size=9000, vector="x"),
        protocol=VECTORS,
        transactions=[SetTransaction(app_id="q", version=1)],
        domains=[DomainMetadata(domain="d", configuration="{}", removed=False)],
        in_commit_timestamp=77,
        txn_id="t-1",
    )
    text = format_checksum(found)
    value = json.loads(text)
    assert text.endswith("}\n")
    assert list(value) == [
        "txnId",
        "tableSizeBytes",
        "numFiles",
        "numDeletedRecordsOpt",
        "numDeletionVectorsOpt",
        "numMetadata",
        "numProtocol",
        "inCommitTimestampOpt",
        "setTransactions",
        "domainMetadata",
        "metadata",
        "protocol",
        "fileSizeHistogram",
        "deletedRecordCountsHistogramOpt",
        "allFiles",
    ]
    assert (value["tableSizeBytes"], value["numFiles"]) == (9005, 2)
    assert (value["numDeletedRecordsOpt"], value["numDeletionVectorsOpt"]) == (2, 1)
    assert value["deletedRecordCountsHistogramOpt"]["deletedRecordCounts"][:3] == [1, 1, 0]
    assert not any(file["dataChange"] for file in value["allFiles"])
    assert parse_checksum(text.encode()) == found


def test_tables_without_deletion_vectors_say_nothing_of_them() -> None:
    value = json.loads(format_checksum(checksum(add("a"))))
    assert not any("Delet" in key for key in value)


def test_lists_that_would_be_long_are_left_out() -> None:
    found = checksum(
        *(add(f"{n}") for n in range(MOST_FILES + 1)),
        transactions=[SetTransaction(app_id=str(n), version=n) for n in range(101)],
        domains=[DomainMetadata(domain=str(n), configuration="", removed=False) for n in range(11)],
    )
    assert found.all_files is found.set_transactions is found.domain_metadata is None
    assert found.num_files == MOST_FILES + 1


def test_sizes_alone_are_enough_for_the_sums() -> None:
    files = add_table([add("a", size=3)]).select(["size", "deletionVector"])
    found = checksum_of(files, protocol=VECTORS, metadata=metadata(), transactions=(), domains=())
    assert (found.table_size_bytes, found.all_files) == (3, None)


def test_the_former_name_of_the_histogram_is_understood() -> None:
    value = json.loads(format_checksum(checksum(add("a"))))
    value["histogramOpt"] = value.pop("fileSizeHistogram")
    assert parse_checksum(json.dumps(value).encode()) == checksum(add("a"))


def test_checksums_of_old_writers_lack_protocol_and_metadata() -> None:
    found = parse_checksum(b'{"tableSizeBytes":1,"numFiles":2,"numMetadata":1,"numProtocol":1}')
    assert found is not None
    assert found.protocol is found.metadata is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"tableSizeBytes":1}',
        '{"tableSizeBytes":-1,"numFiles":2}',
        '{"tableSizeBytes":1,"numFiles":"x"}',
        '{"tableSizeBytes":1,"numFiles":2,"metadata":[]}',
        '{"tableSizeBytes":1,"numFiles":2,"setTransactions":{}}',
        '{"tableSizeBytes":1,"numFiles":2,"allFiles":[{}]}',
        '{"tableSizeBytes":1,"numFiles":2,"fileSizeHistogram":{"sortedBinBoundaries":[1],'
        '"fileCounts":[0],"totalBytes":[0]}}',
        '{"tableSizeBytes":1,"numFiles":2,"fileSizeHistogram":{"sortedBinBoundaries":[0],'
        '"fileCounts":[],"totalBytes":[0]}}',
        '{"tableSizeBytes":1,"numFiles":2,"deletedRecordCountsHistogramOpt":'
        '{"deletedRecordCounts":[0]}}',
        '{"x":' * 100_000,
    ],
)
def test_a_text_that_is_no_checksum_counts_as_absent(text: str) -> None:
    assert parse_checksum(text.encode()) is None


def test_a_checksum_is_written_once() -> None:
    store = MemoryStore()
    first = checksum(add("a"))
    assert write_checksum(store, 3, first)
    assert not write_checksum(store, 3, checksum(add("b"), add("c")))
    assert read_checksum(store, 3) == first
    assert store.exists(checksum_path(3))
    assert read_checksum(store, 4) is None


def test_the_bins_are_delta_sparks() -> None:
    mega = 1 << 20
    assert len(FILE_SIZE_BINS) == 95
    assert FILE_SIZE_BINS[:3] == (0, 8192, 16384)
    assert FILE_SIZE_BINS[10:13] == (4 * mega, 8 * mega, 12 * mega)
    assert FILE_SIZE_BINS[30:33] == (124 * mega, 128 * mega, 132 * mega)
    assert FILE_SIZE_BINS[-1] == 256 << 30
    assert DELETED_RECORD_BINS == (0, 1, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7, 2**31 - 1)


@given(st.lists(st.integers(0, 1 << 40), max_size=30))
def test_a_column_and_single_files_give_the_same_histogram(sizes: list[int]) -> None:
    column = pa.chunked_array([pa.array(sizes, pa.int64())])
    one_by_one = EMPTY_FILE_SIZES.change(added=sizes, removed=[])
    assert file_size_histogram(column) == one_by_one
    assert one_by_one.change(added=[], removed=sizes) == EMPTY_FILE_SIZES
    counts = deleted_records_histogram(column).counts
    assert sum(counts) == len(sizes)


def test_a_commit_is_added_to_the_sums() -> None:
    start = checksum(add("a", size=5), add("b", size=7))
    found = advanced(
        start,
        add("c", size=9),
        replace(remove("b"), size=7),
        SetTransaction(app_id="q", version=1),
        CommitInfo(in_commit_timestamp=50),
    )
    expected = checksum(
        add("a", size=5),
        add("c", size=9),
        transactions=[SetTransaction(app_id="q", version=1)],
        in_commit_timestamp=50,
    )
    assert found == expected


def test_the_first_version_is_summed_from_nothing() -> None:
    found = advanced(None, VECTORS, metadata(), add("a", size=3))
    assert found == checksum(add("a", size=3), protocol=VECTORS)
    assert advanced(None, add("a")) is None


def test_a_new_vector_for_a_file_changes_only_the_vectors() -> None:
    start = checksum(add("a"), protocol=VECTORS)
    found = advanced(start, replace(remove("a"), size=1), add("a", vector="x"))
    assert found == checksum(add("a", vector="x"), protocol=VECTORS)


def test_other_spellings_of_a_path_are_the_same_file() -> None:
    start = checksum(add("a b", size=1))
    found = advanced(start, replace(remove(f"{ROOT}/a%20b"), size=1))
    assert found is not None
    assert (found.num_files, found.all_files) == (0, ())


def test_removed_domains_vanish_and_the_newest_transaction_counts() -> None:
    domain = DomainMetadata(domain="d", configuration="", removed=False)
    txn = SetTransaction(app_id="q", version=1)
    start = checksum(domains=[domain], transactions=[txn])
    found = advanced(start, replace(domain, removed=True), replace(txn, version=0))
    assert found is not None
    assert (found.domain_metadata, found.set_transactions) == ((), (replace(txn, version=0),))


@pytest.mark.parametrize(
    "actions",
    [
        (RemoveFile(path="a"),),
        (add("b"), add("b")),
        (add("a"), replace(remove("a"), size=1)),
        (replace(remove("a"), size=10),),
        (replace(remove("a"), size=1), replace(remove("x"), size=1)),
        (replace(remove("x"), size=1),),
        (add("a"),),
        (add("b", data_change=False),),
    ],
    ids=[
        "no size",
        "twice",
        "added and removed",
        "larger than the table",
        "more than there are",
        "not live",
        "live already",
        "no data changed",
    ],
)
def test_what_cannot_be_summed_exactly_is_not_summed(actions: tuple[Action, ...]) -> None:
    assert advanced(checksum(add("a", size=1)), *actions) is None


def test_operations_that_add_live_files_again_are_not_summed() -> None:
    start = checksum(add("a"))
    assert advanced(start, add("a"), operation="COMPUTE STATS") is None
    assert advanced(start, add("b"), operation="WRITE") is not None


def test_transactions_that_expire_are_not_listed() -> None:
    forgetful = metadata(configuration={"delta.setTransactionRetentionDuration": "1 day"})
    found = advanced(checksum(), forgetful)
    assert found is not None
    assert found.set_transactions is None


def test_sums_that_were_not_known_stay_unknown() -> None:
    start = replace(checksum(add("a")), file_size_histogram=None, all_files=None)
    found = advanced(start, add("b"))
    assert found is not None
    assert found.file_size_histogram is found.all_files is None
    assert found.num_files == 2


def test_differences_are_named() -> None:
    known = checksum(add("a", size=1), transactions=[SetTransaction(app_id="q", version=1)])
    assert mismatches(known, known) == []
    other = checksum(add("a", size=2), add("b", size=2))
    lines = mismatches(known, other)
    assert lines[:2] == [
        "tableSizeBytes: 1 in the checksum, 4 in the log",
        "numFiles: 1 in the checksum, 2 in the log",
    ]
    assert lines[2:] == ["setTransactions differs", "fileSizeHistogram differs"]


def test_the_order_of_a_list_is_no_difference() -> None:
    first, second = SetTransaction(app_id="a", version=1), SetTransaction(app_id="b", version=1)
    assert (
        mismatches(checksum(transactions=[first, second]), checksum(transactions=[second, first]))
        == []
    )


FILES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1 << 32), max_size=6)


@settings(max_examples=40)
@given(st.lists(FILES, min_size=1, max_size=6))
def test_a_chain_of_commits_gives_what_the_whole_version_gives(
    versions: list[dict[str, int]],
) -> None:
    live: dict[str, int] = {}
    found: VersionChecksum | None = checksum(protocol=VECTORS)
    for wanted in versions:
        changed = {p: s for p, s in wanted.items() if live.get(p) != s and p not in live}
        gone = {p: s for p, s in live.items() if p not in wanted}
        found = advanced(
            found,
            *(add(p, size=s) for p, s in changed.items()),
            *(replace(remove(p), size=s) for p, s in gone.items()),
        )
        live = {p: s for p, s in live.items() if p not in gone} | changed
    expected = checksum(*(add(p, size=s) for p, s in live.items()), protocol=VECTORS)
    assert found is not None
    assert found.all_files is not None
    assert set(found.all_files) == set(expected.all_files or ())
    assert replace(found, all_files=None) == replace(expected, all_files=None)
