"""The package as others get it: a wheel with its types, which a type checker finds."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Right and wrong uses, with what mypy must say of each line.
_USES = """
from pyspark.sql import DataFrame, SparkSession
from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.errors import DeltaError

def use(spark: SparkSession) -> DataFrame:
    session: SparkSession = enable(spark)
    table = DeltaTable.forPath(session, "/t")
    version: int = DeltaLog.for_table("/t").update().version
    reveal_type(table.history(version))
    wrong: str = DeltaLog.for_table("/t").update().version
    table.toDF().no_such_method()
    DeltaTable.forPath(session, 7)
    condition: str | None = DeltaError("DELTA_EMPTY_DATA").condition
    return table.toDF()
"""


def test_a_wheel_ships_the_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    name = backend.build_wheel(str(tmp_path))
    with ZipFile(tmp_path / name) as wheel:
        names = set(wheel.namelist())
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "pyspark_delta/py.typed" in sources
    assert "pyspark_delta/conditions.json" in sources
    assert sources <= names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)


def test_type_checkers_know_the_public_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    code = tmp_path / "uses.py"
    code.write_text(_USES)
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            str(tmp_path),
            str(code),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = _USES.splitlines()
    said = {
        lines[int(line.split(":")[1]) - 1].split()[0].split("(")[0]: line.partition(": ")[2]
        for line in checked.stdout.splitlines()
    }
    assert set(said) == {"reveal_type", "wrong:", "table.toDF", "DeltaTable.forPath"}, (
        checked.stdout
    )
    assert "DataFrame" in said["reveal_type"]
    assert 'expression has type "int"' in said["wrong:"]


def test_every_public_name_is_there_at_run_time() -> None:
    package = import_module("pyspark_delta")
    for name in package.__all__:
        assert getattr(package, name) is not None
