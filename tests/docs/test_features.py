"""docs/features.md: every row of the groups it covers, and a test for every claim."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.support.golden import ABSENT
from tests.support.proofs import INTEROP, Row, not_shown, outcomes_of, parse_rows

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "features.md"
# The table that the page's ids and texts come from; a clone may lack it.
REFERENCE = ROOT.parent / "shared" / "reference" / "features.md"
GROUPS = {
    "L": 36,
    "A": 16,
    "F": 41,
    "S": 17,
    "K": 12,
    "W": 19,
    "Q": 31,
    "X": 10,
    "P": 15,
    "E": 6,
    "V": 14,
    "D": 21,
    "C": 11,
    "T": 14,
    "I": 10,
    "M": 19,
    "N": 5,
    "Z": 34,
}
IDS = [f"{group}{number:02d}" for group, last in GROUPS.items() for number in range(1, last + 1)]

_REFERENCE_ROW = re.compile(r"^\| ([A-Z]\d\d) \| (.+?) \|", re.MULTILINE)
_OURS = re.compile(r"yes|partial: \S.*|no")


ROWS = parse_rows(PAGE.read_text(encoding="utf-8"))


@cache
def functions_of(file: str) -> frozenset[str]:
    """The functions of a test file, those of its classes included."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_row_of_the_groups_is_there_in_order() -> None:
    assert [row.id for row in ROWS] == IDS


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the table of all features is not beside us")
def test_the_rows_say_what_the_table_of_all_features_says() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    wanted = {id_: feature for id_, feature in _REFERENCE_ROW.findall(text) if id_[0] in GROUPS}
    assert {row.id: row.feature for row in ROWS} == wanted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_claims_nothing_without_a_test_that_exists(row: Row) -> None:
    assert _OURS.fullmatch(row.ours), f"{row.ours!r} is neither yes, nor partial: what, nor no"
    assert row.tests or row.ours == "no"
    assert len(set(row.tests)) == len(row.tests)
    assert row.shown_by == _shown_by(row.tests)
    absent = [
        f"{file}::{name}"
        for file, name in row.tests
        if not (TESTS / file).is_file() or name not in functions_of(file)
    ]
    assert not absent


def _shown_by(tests: list[tuple[str, str]]) -> str:
    """Tests as a cell lists them: those beside delta-spark behind the others, with a word on it."""
    listed = {
        is_interop: ", ".join(
            f"`{file}::{name}`" for file, name in tests if file.startswith("interop/") is is_interop
        )
        for is_interop in (False, True)
    }
    interop = f"{INTEROP}{listed[True]}" if listed[True] else ""
    return "; ".join(part for part in (listed[False], interop) if part)


def test_a_line_that_looks_like_a_row_is_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert Counter(re.findall(r"^\| ([A-Z]\d\d) ", text, re.MULTILINE)) == Counter(IDS)


def test_a_row_is_taken_apart() -> None:
    (row,) = parse_rows("| L01 | a, b | partial: no c | `log/test_x.py::test_y` |\n")
    assert (row.feature, row.ours) == ("a, b", "partial: no c")
    assert row.tests == [("log/test_x.py", "test_y")]
    (bare,) = parse_rows("| L02 | a | no | |\n")
    assert bare.tests == []


REPORT = """<testsuites><testsuite>
<testcase classname="tests.log.test_a" name="test_passes[1]"/>
<testcase classname="tests.log.test_a" name="test_passes[2]"><skipped message="no"/></testcase>
<testcase classname="tests.log.test_a" name="test_skipped"><skipped message="no"/></testcase>
<testcase classname="tests.log.test_a" name="test_golden"><skipped message="{absent}"/></testcase>
<testcase classname="tests.log.test_a" name="test_failed"><failure/></testcase>
<testcase classname="tests.storage.test_b.TestStore" name="test_of_a_contract"/>
</testsuite></testsuites>"""


def test_a_row_whose_test_is_skipped_deselected_or_failed_is_told(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(absent=ABSENT), encoding="utf-8")
    names = ("passes", "skipped", "golden", "failed", "deselected")
    page = "".join(
        f"| L{number:02d} | f | yes | `log/test_a.py::test_{name}` |\n"
        for number, name in enumerate(names, 1)
    )
    page += "| L06 | f | yes | `contracts/log_store.py::test_of_a_contract` |\n"
    page += f"| L07 | f | yes | {INTEROP}`log/test_a.py::test_golden` |\n"
    rows = parse_rows(page)
    told = not_shown(rows, outcomes_of([report], "test"), "test")
    assert [line.split()[0] for line in told] == ["L02", "L04", "L05"]
    told = not_shown(rows, outcomes_of([report], "interop"), "interop")
    assert [line.split()[0] for line in told] == ["L07"]
