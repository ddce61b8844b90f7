"""Delta by configuration alone, in programs that nobody edits: the installed wheel starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[3]


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


def test_the_wheel_has_the_command(site: Path) -> None:
    [listed] = (site / "venv").glob("lib/python*/site-packages/*.dist-info/entry_points.txt")
    parser = ConfigParser()
    parser.read(listed)
    module, _, name = parser["console_scripts"]["pyspark-delta"].partition(":")
    assert callable(getattr(import_module(module), name))
