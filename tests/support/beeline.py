"""beeline, which Spark brings: a JVM of its own that speaks JDBC.

[outcome] = run_beeline(server.jdbc_url, home, ["SELECT 1 AS one"])
outcome.lines  # ["one", "1"]
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_MARK = "---- the end of statement"
_END = f"SELECT '{_MARK}' AS mark;\n"
_CONDITION = re.compile(r"\[([A-Z][A-Z_0-9.]+)\]")
_STATE = re.compile(r"\(state=(\w+),code=\d+\)")
_SECONDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What beeline printed for a statement."""

    text: str

    @property
    def failure(self) -> tuple[str, str] | None:
        """Condition and SQLSTATE of its error; None without one."""
        if not self.text.startswith("Error:"):
            return None
        condition, state = _CONDITION.search(self.text), _STATE.search(self.text)
        assert condition, self.text
        assert state, self.text
        return condition[1], state[1]

    @property
    def columns(self) -> list[str]:
        """The names of the result's columns."""
        return self._table[0] if self._table else []

    @property
    def rows(self) -> list[list[str]]:
        """The values of the result as texts."""
        return self._table[1:]

    @property
    def _table(self) -> list[list[str]]:
        return list(csv.reader(self.text.splitlines(keepends=True)))


def run_beeline(url: str, directory: Path, statements: Sequence[str]) -> list[Outcome]:
    """Run statements in one connection, also those that follow one that fails."""
    script = directory / "script.sql"
    # A statement is a line, which may have semicolons inside.
    marked = "".join(f"{' '.join(each.split())};\n{_END}" for each in statements)
    # What comes before the first statement's result is what beeline logs.
    script.write_text(_END + marked, encoding="utf-8")
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    jars = Path(package.origin).parent / "jars"
    java = (
        "java",
        "-Dfile.encoding=UTF-8",
        "-Ddisable.quoting.for.sv=false",
        "-cp",
        f"{jars}/*",
        "org.apache.hive.beeline.BeeLine",
    )
    options = ("--outputformat=csv2", "--silent=true", "--force=true", "--entireLineAsCommand=true")
    done = subprocess.run(
        [*java, "-u", url, *options, "-f", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # in the order of the statements
        encoding="utf-8",
        timeout=_SECONDS,
        check=False,
    )
    found = re.split(rf"mark\n{_MARK}\n", done.stdout)
    assert len(found) == len(statements) + 2, done.stdout[-4000:]
    return [Outcome(text=each.strip("\n")) for each in found[1:-1]]
