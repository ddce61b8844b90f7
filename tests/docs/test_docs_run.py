"""What README, docs and docstrings show is what happens.

The python blocks of one file run in order, in one namespace, in an empty folder.  A text block
right after one is its exact output.  A block that cannot run here opens with
"python no-run: <reason>".
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import itertools
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clean_session import kept_clean

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCE = ROOT / "src" / "pyspark_delta"

_FENCE = re.compile(r"(?P<ticks>`{3,})(?P<info>[^`]*)")
_NO_RUN = re.compile(r"python no-run: \S.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    info: str
    line: int  # where its first line stands, from 1
    text: str
    follows: bool  # only blank lines stand between this block and the one before


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Code that runs, and what it prints; None when the page does not say."""

    code: Block
    output: str | None


def parse_blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    opened: re.Match[str] | None = None
    start, body, only_blank = 0, list[str](), False
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None:
            if opened := _FENCE.fullmatch(line.rstrip()):
                start, body = number + 1, []
            elif line.strip():
                only_blank = False
        elif line.rstrip() == opened["ticks"]:
            yield Block(
                info=opened["info"].strip(),
                line=start,
                text="".join(f"{row}\n" for row in body),
                follows=only_blank,
            )
            opened, only_blank = None, True
        else:
            body.append(line)
    assert opened is None, f"the block that opens at line {start - 1} never ends"


def parse_examples(text: str) -> Iterator[Example]:
    """The python blocks that run, each with the output the page shows for it."""
    blocks = list(parse_blocks(text))
    for block, after in itertools.zip_longest(blocks, blocks[1:]):
        if not block.info.startswith("python") or _NO_RUN.fullmatch(block.info):
            continue
        assert block.info == "python", (
            f"line {block.line - 1}: a block says 'python', or 'python no-run: <reason>'"
        )
        shown = after is not None and after.info == "text" and after.follows
        yield Example(code=block, output=after.text if shown and after else None)


def _page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_the_code_of_a_page_does_what_the_page_says(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    examples = list(parse_examples(page.read_text(encoding="utf-8")))
    with contextlib.ExitStack() as ended:
        if any("SparkSession" in example.code.text for example in examples):
            spark = request.getfixturevalue("spark")  # which getOrCreate() then finds
            ended.enter_context(kept_clean(spark))
        _run(examples, page, namespace)


def _run(examples: list[Example], page: Path, namespace: dict[str, object]) -> None:
    for example in examples:
        printed = io.StringIO()
        # Blank lines in front, so that a traceback names the line of the page.
        code = compile("\n" * (example.code.line - 1) + example.code.text, page, "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if example.output is not None:
            # `show` ends with an empty line, which a page need not have.
            found, shown = printed.getvalue().rstrip("\n"), example.output.rstrip("\n")
            assert found == shown, f"the block at line {example.code.line}"


def _modules() -> list[str]:
    packages = ("errors", "kernel", "spark")
    modules = ("actions",)
    return [
        *(f"pyspark_delta.{name}" for name in (*packages, *modules)),
        *(
            found.name
            for name in packages
            for found in pkgutil.walk_packages([str(SOURCE / name)], f"pyspark_delta.{name}.")
        ),
    ]


@pytest.mark.parametrize("name", _modules())
def test_the_examples_of_a_docstring_are_true(name: str) -> None:
    output = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for case in doctest.DocTestFinder().find(importlib.import_module(name)):
        runner.run(case, out=output.write)
    assert runner.summarize(verbose=False).failed == 0, output.getvalue()


def test_the_map_of_the_protocol_names_files_that_are_there() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| ([^|]*\.py[^|]*) \| ([^|]*) \|$",
        (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    named = {
        folder / name
        for row in rows
        for folder, cell in zip((SOURCE / "kernel", ROOT / "tests"), row, strict=True)
        for name in re.findall(r"`([\w/]+\.py)`", cell)
    }
    assert named
    assert sorted(_page_name(path) for path in named if not path.is_file()) == []


def test_a_link_of_a_page_leads_somewhere() -> None:
    dead = [
        f"{_page_name(page)}: {target}"
        for page in (*PAGES, ROOT / "AGENTS.md", ROOT / "CHANGELOG.md")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not dead


def test_a_text_block_right_after_code_is_its_output() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\nwords\n```text\n2\n```\n"
    (example,) = parse_examples(page)
    assert (example.code.text, example.code.line, example.output) == ("print(1)\n", 2, "1\n")


def test_a_text_block_after_words_is_not_output() -> None:
    (example,) = parse_examples("```python\nprint(1)\n```\nA picture:\n```text\nx\n```\n")
    assert example.output is None


def test_code_that_does_not_run_gives_a_reason() -> None:
    assert not list(parse_examples("```python no-run: needs a bucket\n1/0\n```\n"))
    with pytest.raises(AssertionError, match="no-run"):
        list(parse_examples("```python no-run\n1/0\n```\n"))
