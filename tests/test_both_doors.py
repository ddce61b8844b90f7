"""The tests of the rooms that run through both doors: few of them may need the driver's JVM."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_IN_A_ROOM = {"sql": 6, "api": 12}


def rooms_of_both_doors() -> list[str]:
    """The rooms that `make test DOOR=connect` runs."""
    text = (ROOT / "scripts" / "test.sh").read_text(encoding="utf-8")
    return re.findall(r'^  rooms="([a-z ]+)"$', text, re.MULTILINE)[0].split()


def classic_tests(module: Path) -> list[str]:
    """The tests of a module that are marked as `classic`."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert not [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and "pytest.mark.classic" in ast.unparse(node)
    ], f"{module}: mark tests one by one"
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any("pytest.mark.classic" in ast.unparse(each) for each in node.decorator_list)
    ]


def test_the_rooms_are_those_with_a_bound() -> None:
    assert set(rooms_of_both_doors()) == set(MOST_IN_A_ROOM)


@pytest.mark.parametrize("room", MOST_IN_A_ROOM)
def test_few_tests_need_the_jvm_of_the_driver(room: str) -> None:
    modules = sorted((ROOT / "tests" / "spark" / room).glob("test_*.py"))
    assert modules
    found = [name for module in modules for name in classic_tests(module)]
    assert len(found) <= MOST_IN_A_ROOM[room], found
