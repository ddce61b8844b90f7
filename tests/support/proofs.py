"""Whether the tests that docs/features.md names ran and passed, out of what a run of tests reports.

`python -m tests.support.proofs test report.xml...` is for a whole run of `make test`, and looks for
the tests that are to run there; `interop` is for `make interop`.  A test of several cases is shown
by one that passed: a test that is skipped, deselected or gone has none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from tests.support.golden import ABSENT

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
INTEROP = "in `make interop`: "
"""What stands in a row before tests that need delta-spark, and run beside it alone."""

Run = Literal["test", "interop"]
TestName = tuple[str, str]
"""A file below `tests`, and a function of it."""

_ROW = re.compile(r"^\| ([A-Z]\d\d) \| (.+?) \| (.+?) \|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
_CONTRACTS = "contracts/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the page."""

    id: str
    feature: str
    ours: str
    shown_by: str

    @property
    def tests(self) -> list[TestName]:
        """All tests that are named."""
        return _TEST.findall(self.shown_by)

    def tests_of(self, run: Run) -> list[TestName]:
        """Those that a run is to show."""
        here, _, interop = self.shown_by.partition(INTEROP)
        return _TEST.findall(here if run == "test" else interop)


def parse_rows(text: str) -> list[Row]:
    return [
        Row(id=found[0], feature=found[1], ours=found[2], shown_by=found[3].strip())
        for found in _ROW.findall(text)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Tests of which a case passed, and those that were left out because material is absent."""

    passed: frozenset[TestName]
    excused: frozenset[TestName]

    def has_shown(self, test: TestName) -> bool:
        file, name = test
        if file.startswith(_CONTRACTS):  # its classes run where they are inherited
            return any(name == other for _, other in self.passed)
        return test in self.passed or test in self.excused


def outcomes_of(reports: Iterable[Path], run: Run) -> Outcomes:
    """What happened to each test, by JUnit's reports of one or several runs."""
    passed, excused = set(), set()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            test = _test_of(case.get("classname", ""), case.get("name", ""))
            skipped = case.find("skipped")
            if skipped is not None:
                # Golden tables need not lie beside a clone; beside delta-spark they must.
                if run == "test" and ABSENT in (skipped.get("message") or ""):
                    excused.add(test)
            elif case.find("failure") is None and case.find("error") is None:
                passed.add(test)
    return Outcomes(passed=frozenset(passed), excused=frozenset(excused))


def not_shown(rows: Iterable[Row], outcomes: Outcomes, run: Run) -> Iterator[str]:
    """A line for each row and test that the run did not show."""
    for row in rows:
        for test in row.tests_of(run):
            if not outcomes.has_shown(test):
                yield f"{row.id} {row.ours}: {'::'.join(test)} has not passed"


def _test_of(classname: str, name: str) -> TestName:
    parts = classname.split(".")[1:]
    while parts and parts[-1][0].isupper():  # a class inside of the file
        parts.pop()
    return "/".join(parts) + ".py", name.partition("[")[0]


def main(arguments: list[str]) -> int:
    run: Run = "interop" if arguments[0] == "interop" else "test"
    rows = parse_rows(PAGE.read_text(encoding="utf-8"))
    found = list(not_shown(rows, outcomes_of(map(Path, arguments[1:]), run), run))
    for line in found:
        print(f"docs/features.md: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
