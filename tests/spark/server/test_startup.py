"""Delta by configuration alone, in programs that nobody edits: the installed wheel starts it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.agreement import agree

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
ENABLED = "spark.pyspark_delta.enabled"
OLD = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# A program that nobody edits; what it finds is the line after the last mark.
BEGIN = """
import json, sys
from pyspark.sql import SparkSession
path, found = sys.argv[1], {}
def look(name, builder):
    spark = builder.getOrCreate()
    parser = spark._jsparkSession.sessionState().sqlParser().getClass().getName()
    found[name] = {"ours": "pyspark_delta.spark" in sys.modules, "parser": parser}
    return spark
def use(spark, table):
    spark.range(3).write.format("delta").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
"""
END = """
print("found", json.dumps(found), flush=True)
"""
PLAIN = f"{BEGIN}use(look('session', SparkSession.builder), path){END}"
# One JVM: a session of no settings, the same one with a setting, one of delta-spark's settings.
BUILDERS = f"""{BEGIN}
from pyspark.sql.classic.dataframe import DataFrame
first = DataFrame.alias
nothing = look("nothing", SparkSession.builder)
found["nothing"]["changed"] = DataFrame.alias is not first
found["nothing"]["extensions"] = nothing.conf.get("spark.sql.extensions", None)
use(look("builder", SparkSession.builder.config({ENABLED!r}, "true")), path + "/builder")
nothing.stop()
use(look("old settings", SparkSession.builder.config(map={OLD!r})), path + "/old")
{END}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A way to start a program."""

    program: str = PLAIN
    submit: tuple[str, ...] | None = None
    defaults: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None


STARTS = {
    "the environment": Start(environment={"PYSPARK_DELTA": "1"}),
    "builders": Start(program=BUILDERS),
    "spark-defaults.conf": Start(submit=(), defaults=(f"{ENABLED} true",)),
    "spark-submit --conf": Start(submit=("--conf", f"{ENABLED}=true")),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel installed, and everything that it needs."""
    home = tmp_path_factory.mktemp("envïronment 100%")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home / "wheel")],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    venv.create(home / "venv", symlinks=True)
    [packages] = (home / "venv").glob("lib/python*/site-packages")
    [wheel] = (home / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    others = Path(pyspark.__file__).parents[1]
    (packages / "others.pth").write_text(f"{others}\n", encoding="utf-8")
    return home


def _environment(more: dict[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, **more}


def test_python_starts_without_importing_anything_for_it(site: Path) -> None:
    python = str(site / "venv" / "bin" / "python")
    done = subprocess.run(
        [python, "-X", "importtime", "-c", "import sys; print(*sys.modules)"],
        env=_environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [line for line in done.stderr.splitlines() if "pyspark_delta" in line]
    print(*ours)  # how long it takes, for those who look
    assert len(ours) == 1
    names = set(done.stdout.split())
    assert "_pyspark_delta_startup" in names
    assert not names & {"pyspark", "pyspark_delta", "py4j", "pyarrow"}


def test_a_start_of_python_pays_less_than_a_millisecond(site: Path) -> None:
    python = str(site / "venv" / "bin" / "python")
    times = []
    for _ in range(5):
        done = subprocess.run(
            [python, "-X", "importtime", "-c", ""],
            env=_environment({}),
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"\|\s*(\d+) \|\s*_pyspark_delta_startup$", done.stderr, re.MULTILINE)
        assert found
        times.append(int(found[1]))
    assert min(times) < 1_000, times  # microseconds, of the module and what it imports


@pytest.fixture(scope="module")
def found(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What the programs find, by their names; two run at a time."""
    home = tmp_path_factory.mktemp("prögrams 100%")
    with ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(_run, site, home / name, start) for name, start in STARTS.items()}
        yield {name: (home / name / "table", run) for name, run in runs.items()}


def _run(site: Path, home: Path, start: Start) -> dict[str, Any]:
    """Start a program in the environment, and return what it found."""
    home.mkdir()
    program, python = home / "program.py", str(site / "venv" / "bin" / "python")
    program.write_text(start.program, encoding="utf-8")
    settings = (
        "spark.master local[1]",
        "spark.ui.enabled false",
        "spark.driver.memory 512m",
        f"spark.sql.warehouse.dir {(home / 'warehouse').as_uri()}",
        *start.defaults,
    )
    (home / "spark-defaults.conf").write_text("\n".join(settings), encoding="utf-8")
    command = [python, str(program)]
    if start.submit is not None:
        command = [str(SPARK / "bin" / "spark-submit"), *start.submit, str(program)]
    own = {
        "SPARK_HOME": str(SPARK),
        "SPARK_CONF_DIR": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        **(start.environment or {}),
    }
    done = subprocess.run(
        [*command, str(home / "table")],
        env={**_environment(own), "PYTHONIOENCODING": "utf-8"},
        cwd=home,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert lines, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix("found "))
    return answer


@pytest.mark.parametrize("name", [name for name in STARTS if name != "builders"])
def test_a_setting_is_enough_for_a_program_that_knows_nothing_of_it(found: Any, name: str) -> None:
    path, run = found[name]
    session = run.result()["session"]
    assert session["ours"]
    assert session["parser"].startswith("pyspark_delta.")
    agree(path, [{"id": 0}, {"id": 2}])


def test_a_builder_with_the_setting_enables_a_session_that_runs(found: Any) -> None:
    path, run = found["builders"]
    assert run.result()["builder"]["parser"].startswith("pyspark_delta.")
    agree(path / "builder", [{"id": 0}, {"id": 2}])


def test_settings_of_delta_spark_are_enough_in_any_builder(found: Any) -> None:
    path, run = found["builders"]
    assert run.result()["old settings"]["parser"].startswith("pyspark_delta.")
    agree(path / "old", [{"id": 0}, {"id": 2}])


def test_nothing_changes_without_a_setting(found: Any) -> None:
    _, run = found["builders"]
    assert run.result()["nothing"] == {
        "ours": False,
        "parser": "org.apache.spark.sql.execution.SparkSqlParser",
        "changed": False,
        "extensions": None,
    }


def test_the_wheel_has_the_command(site: Path) -> None:
    [listed] = (site / "venv").glob("lib/python*/site-packages/*.dist-info/entry_points.txt")
    parser = ConfigParser()
    parser.read(listed)
    module, _, name = parser["console_scripts"]["pyspark-delta"].partition(":")
    assert callable(getattr(import_module(module), name))
