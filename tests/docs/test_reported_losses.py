"""docs/reported-losses.md: all 36 reports, each with a test that exists or a word on why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "reported-losses.md"
# The list that the numbers come from; a clone may lack it.
REFERENCE = ROOT.parent / "shared" / "reference" / "reliability.md"

_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
ROWS = {int(row[0]): row[1:] for row in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


def test_all_reports_are_there_in_order() -> None:
    assert list(ROWS) == list(range(1, 37))


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the list of all reports is not beside us")
def test_a_row_names_the_issues_that_the_list_names() -> None:
    text = REFERENCE.read_text(encoding="utf-8").partition("## 6.")[2].partition("## 7.")[0]
    for number, reference, *_ in _ROW.findall(text):
        wanted = set(re.findall(r"\d{3,}", reference.partition("(feldera")[0]))
        if "Suite" not in reference:
            assert set(re.findall(r"#(\d+)", ROWS[int(number)][0])) == wanted


@pytest.mark.parametrize("number", ROWS)
def test_a_report_has_a_test_that_exists_or_waits_for_a_feature(number: int) -> None:
    shown_by = ROWS[number][2]
    named = _TEST.findall(shown_by)
    assert named or shown_by.startswith("not yet: needs ")
    for file, name in named:
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{file}::{name}"
