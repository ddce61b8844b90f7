"""docs/design: one form for every record and an index of all; docs name only what exists."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pyspark_delta"
DESIGN = ROOT / "docs" / "design"
INDEX = DESIGN / "README.md"
RECORDS = sorted(path for path in DESIGN.glob("*.md") if path != INDEX)
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "AGENTS.md", "CHANGELOG.md")), *DOCS]
# The leads of a record's paragraphs, in their order.
LEADS = ["Question", "Decision", "Why", "How", "Cost", "Not chosen", "Left"]

_FILE_NAME = re.compile(r"(\d{3})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")
_TITLE = re.compile(r"# (\d{3})\. (\S.*[^.\s])")
_DAY = r"\d{4}-\d{2}-\d{2}"
_DATES = re.compile(rf"Date: ({_DAY}(?: \(amended {_DAY}\))?)\. Status: (.+)\.")
_STATUS = re.compile(r"accepted|replaced by (\d{3})")
_LEAD = re.compile(r"^\*\*([^*]+)\.\*\*", re.MULTILINE)
_INDEX_ROW = re.compile(r"^\| \[(\d{3})\]\(([^)]+)\) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# A file of the package, named from it.  `tests/spark/...` is none.
_MODULE = re.compile(r"(?<![\w./-])(?:spark|kernel)/[\w/]+\.(?:py|java)\b(?!::)")
_FROM_ROOT = re.compile(r"(?<![\w./-])(?:tests|scripts|bench)/[\w/-]+\.(?:py|sh)\b")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def head_of(record: Path) -> tuple[str, str, str, str]:
    """The number, title, dates and status of a record."""
    lines = text_of(record).splitlines()
    titled, dated = _TITLE.fullmatch(lines[0]), _DATES.fullmatch(lines[2])
    assert titled, lines[0]
    assert dated, lines[2]
    return titled[1], titled[2], dated[1], dated[2]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_numbers_have_no_gaps() -> None:
    names = [_FILE_NAME.fullmatch(path.name) for path in RECORDS]
    assert [name and name[1] for name in names] == [f"{i:03d}" for i in range(1, len(names) + 1)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_has_the_one_form(record: Path) -> None:
    text = text_of(record)
    number, _, dates, status = head_of(record)
    assert number == record.name[:3]
    days = [date.fromisoformat(day) for day in re.findall(_DAY, dates)]
    assert days == sorted(set(days))
    stands = _STATUS.fullmatch(status)
    assert stands, status
    assert stands[1] is None or any(path.name.startswith(stands[1]) for path in RECORDS)
    _, blank, _, after, first, *_ = text.splitlines()
    assert (blank, after) == ("", "")
    assert first.startswith("**Question.** ")
    leads = _LEAD.findall(text)
    assert leads == [lead for lead in LEADS if lead in leads]
    assert leads[:2] == ["Question", "Decision"]


def test_the_index_lists_every_record() -> None:
    rows = _INDEX_ROW.findall(text_of(INDEX))
    assert [name for _, name, *_ in rows] == [record.name for record in RECORDS]
    listed = [(number, title, dates, status) for number, _, title, dates, status in rows]
    assert listed == [head_of(record) for record in RECORDS]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = [link.partition("#")[0] for link in _LINK.findall(text_of(page)) if "://" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_named_modules_and_tests_exist(page: Path) -> None:
    text = text_of(page)
    modules = {name for name in _MODULE.findall(text) if not (SOURCE / name).is_file()}
    others = {name for name in _FROM_ROOT.findall(text) if not (ROOT / name).is_file()}
    assert modules | others == set()
