"""The golden tables: real Delta tables written by other engines, kept beside the repository.

Each archive `<name>.tar.zst` holds `<name>/delta`, the table, and where the table is valid
`<name>/expected`, its rows as plain Parquet.  tests/data/README.md is the catalogue.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

_SUFFIX = ".tar.zst"
_BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "conformance" / "golden"
GOLDEN_DIRECTORY = Path(os.environ.get("DELTA_GOLDEN") or _BESIDE_THE_REPOSITORY)
ABSENT = "the golden tables are not there: set DELTA_GOLDEN to the folder that holds them"


def golden_names() -> list[str]:
    """Every golden table, by name; empty where the folder is absent."""
    if not GOLDEN_DIRECTORY.is_dir():
        return []
    return sorted(path.name.removesuffix(_SUFFIX) for path in GOLDEN_DIRECTORY.glob(f"*{_SUFFIX}"))


def each_golden_table() -> list[object]:
    """Every name as a parameter of a test; one that skips with a sentence where there are none."""
    names = golden_names()
    if names:
        return [pytest.param(name, id=name) for name in names]
    return [pytest.param("", id="absent", marks=pytest.mark.skip(reason=ABSENT))]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenTable:
    """One archive, unpacked."""

    name: str
    table: Path
    expected: Path | None  # None: broken on purpose, or about the log and paths alone


class GoldenTables:
    """The archives, each unpacked at most once; what comes back is shared, so never written to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, name: str) -> GoldenTable:
        archive = GOLDEN_DIRECTORY / f"{name}{_SUFFIX}"
        if not GOLDEN_DIRECTORY.is_dir():
            pytest.skip(ABSENT)
        root = self._directory / name
        if not root.exists():
            _unpack(archive, self._directory)
        expected = root / "expected"
        return GoldenTable(
            name=name,
            table=root / "delta",
            expected=expected if expected.is_dir() else None,
        )

    def copy(self, name: str, target: Path) -> Path:
        """The table at `target`, for a test that writes to it."""
        shutil.copytree(self(name).table, target)
        return target


def _unpack(archive: Path, directory: Path) -> None:
    # Unpacked beside and moved into place: a test that was stopped half-way leaves no half table.
    partial = directory / f"{archive.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    with (
        archive.open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=io.BytesIO(stream.read())) as tar,
    ):
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(partial)
    name = archive.name.removesuffix(_SUFFIX)
    (partial / name).rename(directory / name)
    partial.rmdir()
