"""The log alone, beside deltalake: opening, refreshing, committing, checkpoints, skipping."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from bench.measure import (
    OURS,
    Bar,
    Result,
    Timed,
    absolute,
    against,
    in_turns,
    median_result,
)
from bench.tables import write_log, write_typed_checkpoint
from pyspark_delta import DeltaLog
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.scan.plan import plan_scan


def open_and_list(path: Path) -> list[str]:
    DeltaLog.clear_cache()
    files = DeltaLog.for_table(str(path)).snapshot.files_with(["path", "size"])
    paths: list[str] = files.column("path").to_pylist()
    return paths


def peer_open_and_list(path: Path) -> list[str]:
    return DeltaTable(str(path)).file_uris()


def run(root: Path, scale: float) -> Iterator[Result]:
    """Every kernel workload; `scale` shrinks the tables for a quick look."""
    json_files, stats_files = int(300_000 * scale), int(200_000 * scale)
    from_json = write_log(root / "json", json_files)
    from_checkpoint = write_log(root / "checkpoint", stats_files, stats=True)
    DeltaTable(str(from_checkpoint)).create_checkpoint()

    yield against(
        f"open and list {json_files:,} files from JSON",
        "deltalake",
        0.4,
        lambda: open_and_list(from_json),
        lambda: peer_open_and_list(from_json),
    )
    yield against(
        f"open and list {stats_files:,} files from a checkpoint with statistics",
        "deltalake",
        0.8,
        lambda: open_and_list(from_checkpoint),
        lambda: peer_open_and_list(from_checkpoint),
    )
    yield from checksum_rows(root, scale)
    yield from commit_rows(root, scale)
    yield checkpoint_row(root, stats_files)
    yield skipping_row(from_checkpoint)
    yield first_filter_row(root, stats_files)
    yield memory_row(root, int(1_000_000 * scale))
    yield from typed_rows(root, int(3_000_000 * scale), rounds=3)
    yield import_row()


def checksum_rows(root: Path, scale: float) -> Iterator[Result]:
    table = write_log(root / "checksum", int(300_000 * scale))
    log = DeltaLog.for_table(str(table))
    for i in range(10 - log.snapshot.version):  # the tenth version gets a checkpoint and a .crc
        append(log, -i)
    log.wait_for_hooks()
    assert (table / "_delta_log" / f"{10:020d}.crc").exists()
    times = []
    for _ in range(5):
        DeltaLog.clear_cache()
        start = time.perf_counter()
        snapshot = DeltaLog.for_table(str(table)).snapshot
        assert snapshot.protocol
        assert snapshot.schema
        times.append(time.perf_counter() - start)
    yield absolute(
        "protocol and metadata of that table with a .crc",
        1000 * statistics.median(times),
        "ms",
        50,
        samples=[1000 * seconds for seconds in times],
    )
    reader = DeltaLog.for_table(str(table))
    assert reader.snapshot.num_files
    writer = DeltaLog.for_table(str(table), fsync=False)
    refresh = []
    for i in range(1, int(1000 * scale) + 1):
        append(writer, i)
        start = time.perf_counter()
        assert reader.update().num_files
        refresh.append(1000 * (time.perf_counter() - start))
    writer.wait_for_hooks()
    tenth = max(len(refresh) // 10, 1)
    yield absolute(
        "refresh after +1 commit, and count the files",
        statistics.median(refresh),
        "ms",
        10,
        f"first tenth {statistics.median(refresh[:tenth]):.2f}, "
        f"last tenth {statistics.median(refresh[-tenth:]):.2f}, max {max(refresh):.1f}",
        samples=refresh,
    )


def append(log: DeltaLog, i: int) -> None:
    add = AddFile(
        path=f"part-{i:05d}-new.parquet",
        size=1000,
        modification_time=1_700_000_000_000,
        data_change=True,
        stats='{"numRecords":10}',
    )
    log.start_transaction().commit([add], write("Append"))


def commit_rows(root: Path, scale: float) -> Iterator[Result]:
    table = write_log(root / "commits", 10, commits=1)
    log = DeltaLog.for_table(str(table), fsync=False)
    times = []
    for i in range(int(1000 * scale)):
        start = time.perf_counter()
        append(log, i)
        times.append(1000 * (time.perf_counter() - start))
    log.wait_for_hooks()
    tenth = max(len(times) // 10, 1)
    yield absolute(
        f"commit of a small append, p50 over {len(times):,}",
        statistics.median(times),
        "ms",
        5,
        f"p99 {sorted(times)[int(0.99 * len(times))]:.2f}, max {max(times):.1f}, "
        f"first tenth {statistics.median(times[:tenth]):.2f}, "
        f"last tenth {statistics.median(times[-tenth:]):.2f}",
        samples=times,
    )


def checkpoint_row(root: Path, files: int) -> Result:
    mine = write_log(root / "write-mine", files, stats=True)
    theirs = shutil.copytree(mine, root / "write-theirs")

    def ours() -> None:
        DeltaLog.clear_cache()
        DeltaLog.for_table(str(mine)).checkpoint()
        drop_checkpoints(mine)

    def peers() -> None:
        DeltaTable(str(theirs)).create_checkpoint()
        drop_checkpoints(theirs)

    return against(f"open and write a checkpoint of {files:,} files", "deltalake", 0.8, ours, peers)


def drop_checkpoints(table: Path) -> None:
    for path in (table / "_delta_log").iterdir():
        if ".checkpoint" in path.name or path.name == "_last_checkpoint":
            path.unlink()


def skipping_row(table: Path) -> Result:
    snapshot = DeltaLog.for_table(str(table)).snapshot
    whole = plan_scan(snapshot, filter="id >= 0").files.num_rows
    times = []
    for i in range(5):
        low = (whole // 2 + i) * 1000
        start = time.perf_counter()
        plan = plan_scan(snapshot, filter=f"id >= {low} AND id < {low + 2000}")
        times.append(1000 * (time.perf_counter() - start))
        assert plan.files.num_rows == 2
    return absolute(
        f"skip {whole:,} files by statistics, once parsed",
        statistics.median(times),
        "ms",
        100,
        samples=times,
    )


def first_filter_row(root: Path, files: int) -> Result:
    table = write_log(root / "typed", files, stats=True)
    DeltaLog.for_table(str(table)).checkpoint()  # with typed statistics, as ours have them
    times = []
    for i in range(5):
        DeltaLog.clear_cache()
        snapshot = DeltaLog.for_table(str(table)).snapshot
        assert snapshot.files.num_rows == files
        low = (files // 2 + i) * 1000
        start = time.perf_counter()
        plan = plan_scan(snapshot, filter=f"id >= {low} AND id < {low + 2000}")
        times.append(1000 * (time.perf_counter() - start))
        assert plan.files.num_rows == 2
    return absolute(
        "the first such filter after load, our own checkpoint",
        statistics.median(times),
        "ms",
        100,
        f"max {max(times):.0f}; without typed statistics the texts are parsed first, about 0.5 s",
        samples=times,
    )


_PEAK = """
import sys, time
def peak():
    # Of this program alone: getrusage would count what the parent had before it started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
"""
_RSS = f"""{_PEAK}
from pyspark_delta import DeltaLog
base = peak()
files = DeltaLog.for_table(sys.argv[1]).snapshot.files_with(
    ["path", "partitionValues", "size", "modificationTime", "deletionVector"])
print(files.num_rows, base, peak())
"""


def memory_row(root: Path, files: int) -> Result:
    table = write_log(root / "memory", files, stats=True)
    log = DeltaLog.for_table(str(table))
    log.checkpoint()
    printed = subprocess.run(
        [sys.executable, "-c", _RSS, str(table)], capture_output=True, text=True, check=True
    ).stdout.split()
    rows, base, peak = (int(word) for word in printed)
    return absolute(
        "peak RSS per 1M live files (checkpoint with statistics)",
        peak * 1024 / 1e9 * 1_000_000 / rows,
        "GB",
        0.7,
        f"{rows:,} files, {base * 1024 / 1e9:.2f} GB of it is the interpreter with its imports",
    )


_LISTINGS = {
    OURS: (
        "from pyspark_delta import DeltaLog",
        "DeltaLog.for_table(path).snapshot.files.num_rows",
    ),
    "deltalake": ("from deltalake import DeltaTable", "len(DeltaTable(path).file_uris())"),
}


def typed_rows(root: Path, files: int, *, rounds: int) -> Iterator[Result]:
    """Time and memory of all files of a checkpoint that has no statistics as text."""
    table = write_typed_checkpoint(root / "typed alone", files)
    peaks: dict[str, list[float]] = {name: [] for name in _LISTINGS}

    def listed(name: str) -> Timed:
        imported, expression = _LISTINGS[name]
        script = (
            f"{_PEAK}{imported}\npath, start = sys.argv[1], time.perf_counter()\n"
            f"print({expression}, time.perf_counter() - start, peak())"
        )
        rows, seconds, peak = _printed(script, str(table))
        peaks[name].append(peak * 1024 / 1e9)
        return Timed(seconds, rows)

    name = f"all files of a checkpoint with typed statistics only, {files:,} files"
    works = {each: partial(listed, each) for each in _LISTINGS}
    times = in_turns(name, works, rounds=rounds)
    yield median_result(name, times, [Bar(at_most=1.0, peer="deltalake")])
    yield Result(
        workload="peak RSS of that",
        unit="GB",
        values={each: statistics.median(found) for each, found in peaks.items()},
        bars=[Bar(at_most=1.2)],
        samples=peaks,
    )


def import_row() -> Result:
    """What importing costs where pandas is installed, which pyarrow imports at the first chance."""
    script = (
        "import time; start = time.process_time(); from pyspark_delta import DeltaLog; "
        "print(time.process_time() - start)"
    )
    frames = os.pathsep.join(filter(None, [f"{sys.prefix}/frames", os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as bytecode:
        # Bytecode is there after the first run, as it is after an installation.
        env = {
            "PYTHONPATH": frames,
            "PYTHONPYCACHEPREFIX": bytecode,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        times = [_printed(script, env=env)[0] for _ in range(6)][1:]
    return absolute("import DeltaLog, CPU", statistics.median(times), "s", 0.65)


def _printed(script: str, *arguments: str, env: Mapping[str, str] | None = None) -> list[float]:
    printed = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [float(word) for word in printed.split()]
