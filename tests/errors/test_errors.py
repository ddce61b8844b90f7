"""Errors: one tree, conditions that exist, messages that say what to do and hold no secret."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyspark_delta.errors as errors
from pyspark_delta.errors import conditions

SOURCE = Path(errors.__file__).parent
CONDITIONS_FILE = Path(errors.__file__).with_name("conditions.json")

CONFLICTS = (
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentTransactionException",
)

# How the sentence that says what to do may begin: with the deed itself.
DEEDS = """
Adapt Add Allow Ask Assign Call Cast Change Check Choose Clone Collect Comment Commit Compare
Compute Copy Correct Create Delete Drop Empty Enable Filter Flatten Give Go Keep Leave Load
Make Move Name Open Overwrite Put Raise Read Remove Rename Repair Repeat Replace Report Restart
Restore Rewrite Run Set Shorten Start Switch Travel Try Unset Update Use Write
"""

# A sentence ends before a capital or a parameter; a suggestion is a sentence that may be missing.
_BETWEEN_SENTENCES = re.compile(r"(?<=[.?])\s+(?=[A-Z{])|(?<=\.\{suggestion\})\s+")


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def error_classes() -> list[type[errors.DeltaError]]:
    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DeltaError)
    ]
    assert len(found) > 30
    return found


every_class = pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
every_condition = pytest.mark.parametrize("condition", sorted(conditions()))


# The tree


def test_every_error_has_one_root() -> None:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, BaseException):
            assert issubclass(value, errors.DeltaError)


@every_class
def test_every_error_is_public_and_drawn(kind: type[BaseException]) -> None:
    assert kind.__name__ in errors.__all__
    assert getattr(errors, kind.__name__) is kind
    assert errors.__doc__ is not None
    assert re.search(rf"{kind.__name__}\b", errors.__doc__)


@every_class
def test_the_drawing_shows_each_error_below_its_base(kind: type[BaseException]) -> None:
    assert errors.__doc__ is not None
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        if found := re.match(r"([│├└─ ]*)([A-Z]\w+(?:Error|Exception))\b(?: \((\w+)\))?", line):
            above[len(found[1]) // 4 :] = [found[2]]
            if found[2] == kind.__name__:
                break
    else:
        pytest.fail(f"{kind.__name__} is not drawn")
    drawn = above[-2] if len(above) > 1 else "Exception"
    assert drawn == kind.__bases__[0].__name__
    assert (found[3] or None) == (kind.__bases__[1].__name__ if kind.__bases__[1:] else None)


def test_all_names_are_sorted_and_there() -> None:
    assert sorted(errors.__all__) == errors.__all__
    assert all(hasattr(errors, name) for name in errors.__all__)


def test_the_eight_conflicts_have_one_real_base() -> None:
    root = errors.DeltaConcurrentModificationException
    assert {kind.__name__ for kind in root.__subclasses__()} == set(CONFLICTS)
    assert {name for name in vars(errors) if name.endswith("Exception")} == {
        root.__name__,
        *CONFLICTS,
    }


def test_errors_are_the_builtins_a_caller_would_guess() -> None:
    assert issubclass(errors.FileMissingError, FileNotFoundError)
    assert issubclass(errors.FileAlreadyExistsError, FileExistsError)
    assert issubclass(errors.PropertyError, ValueError)
    assert issubclass(errors.InvalidPredicateError, ValueError)


def test_the_errors_need_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import pyspark_delta.errors;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - sys.stdlib_module_names - {'pyspark_delta'}),"
        " sorted(name for name in sys.modules if name.startswith('pyspark_delta.kernel')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE.parent)},
    )
    assert run.stdout.strip() == "[] []"


# What an error carries


@every_class
def test_every_error_survives_pickle_and_copy(kind: type[errors.DeltaError]) -> None:
    error = kind("DELTA_VERSION_NOT_FOUND", userVersion=9, earliest=0, latest=3)
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is kind
        assert copied.condition == "DELTA_VERSION_NOT_FOUND"
        assert copied.parameters == {"userVersion": "9", "earliest": "0", "latest": "3"}
        assert copied.sqlstate == "22003"
        assert str(copied) == str(error)
        assert copied.args == error.args


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_every_pickle_protocol(protocol: int) -> None:
    error = errors.UnsafePathError("DELTA_UNSAFE_PATH", path="../x", table="t", reason="outside")
    assert str(pickle.loads(pickle.dumps(error, protocol))) == str(error)


def test_an_error_says_condition_sentence_and_sqlstate() -> None:
    error = errors.VersionNotFoundError(
        "DELTA_VERSION_NOT_FOUND", userVersion=9, earliest=0, latest=3
    )
    assert str(error).startswith("[DELTA_VERSION_NOT_FOUND] There is no version 9: ")
    assert str(error).endswith(" SQLSTATE: 22003")


def test_an_error_answers_as_a_pyspark_error_does() -> None:
    error = errors.TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName="db.t")
    assert error.getCondition() == error.getErrorClass() == "DELTA_TABLE_NOT_FOUND"
    assert error.getSqlState() == "42P01"
    assert error.getMessageParameters() == {"tableName": "db.t"}
    assert error.getMessage() == str(error)


def test_a_store_error_has_its_condition_by_itself() -> None:
    missing = errors.FileMissingError(path="tä ble 100%/x")
    assert missing.condition == "DELTA_STORAGE_FILE_NOT_FOUND"
    assert "tä ble 100%/x" in str(missing)
    assert errors.FileAlreadyExistsError(path="x").sqlstate == "42710"
    assert errors.UnsupportedSchemeError(path="ftp://x").condition.endswith("UNSUPPORTED_SCHEME")


def test_a_parameter_may_have_any_name_and_hold_braces() -> None:
    error = errors.CorruptLogError(
        "DELTA_MALFORMED_LOG_ENTRY",
        path="{x}",
        line=1,
        byte=2,
        reason="{0} {",
        condition="c",
        self="s",
    )
    assert "{x}" in str(error)
    assert "{0} {" in str(error)
    assert error.parameters["condition"] == "c"


def test_a_parameter_that_is_missing_shows_its_name() -> None:
    assert "There is no Delta table <tableName>." in str(errors.DeltaError("DELTA_TABLE_NOT_FOUND"))


def test_a_huge_parameter_is_cut_in_the_message() -> None:
    error = errors.SchemaError("DELTA_INVALID_SCHEMA_JSON", reason="x" * 1_000_000)
    assert len(str(error)) < 5_000
    assert "1000000 characters" in str(error)
    assert len(error.parameters["reason"]) == 1_000_000


def test_control_characters_cannot_reach_a_terminal() -> None:
    error = errors.UnsafePathError(
        "DELTA_UNSAFE_PATH", path="a\0b\x1b[2J", table="t", reason="a name\nover two lines"
    )
    assert r"a\x00b\x1b[2J" in str(error)
    assert "a name\nover two lines" in str(error)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("s3://bucket/tä ble 100%/f.parquet", "s3://bucket/tä ble 100%/f.parquet"),
        ("abfss://box@account.dfs.core.windows.net/t", None),
        ("/data/what?/f.parquet", None),
        ("https://user:s3cret@host/t", "https://user:***@host/t"),
        ("https://us@er:s3cret@host/t", "https://us@er:***@host/t"),
        ("https://host/t?sv=1&sig=s3cret", "https://host/t?***"),
        ("sent to (https://host/t?sig=s3cret) twice", "sent to (https://host/t?*** twice"),
        ("s3://a/b,https://user:s3cret@host", "s3://a/b,https://user:***@host"),
        ("url='https://h/t?token=s3cret'", "url='https://h/t?***'"),
    ],
)
def test_secrets_in_addresses_are_not_shown(given: str, shown: str | None) -> None:
    error = errors.StorageError(operation="read", path=given, reason=f"no answer from {given}")
    assert error.parameters["path"] == (shown or given)
    for text in (str(error), repr(error), str(error.parameters), str(error.args)):
        assert "s3cret" not in text
    assert "s3cret" not in str(pickle.loads(pickle.dumps(error)))


def test_secrets_are_looked_for_in_a_hostile_text_of_a_million_characters() -> None:
    hostile = "a." * 200_000 + "a://" * 200_000
    path, reason = hostile + "u:s3cret@h", hostile + "h?s3cret"
    error = errors.StorageError(operation="read", path=path, reason=reason)
    assert error.parameters["path"] == hostile + "u:***@h"
    assert error.parameters["reason"] == hostile + "h?***"
    assert len(str(error)) < 20_000


# The conditions


def test_the_file_has_one_sorted_line_per_condition() -> None:
    text = CONDITIONS_FILE.read_text(encoding="utf-8")
    entries = json.loads(text, object_pairs_hook=list)
    names = [name for name, _ in entries]
    assert names == sorted(set(names))
    lines = [
        f"  {json.dumps(name)}: {json.dumps(dict(entry), ensure_ascii=False)}"
        for name, entry in entries
    ]
    assert text == "{\n" + ",\n".join(lines) + "\n}\n"


@every_condition
def test_every_condition_is_well_formed(condition: str) -> None:
    entry = conditions()[condition]
    assert {"sqlstate", "message"} <= set(entry) <= {"sqlstate", "spark", "message"}
    assert re.fullmatch(r"[A-Z][A-Z0-9_]+(\.[A-Z][A-Z0-9_]+)?", condition)
    assert re.fullmatch(r"[0-9A-Z]{5}", entry["sqlstate"])
    assert re.fullmatch(r"\S.*[.?]", entry["message"])


@every_condition
def test_every_message_says_what_is_wrong_and_then_what_to_do(condition: str) -> None:
    *wrong, step = _BETWEEN_SENTENCES.split(conditions()[condition]["message"])
    assert wrong
    assert not any(_begins_with_a_deed(sentence) for sentence in wrong)
    assert _begins_with_a_deed(step)
    # "Correct it." leaves open what; three words name the thing.
    assert len(step.split()) >= 3


def _begins_with_a_deed(sentence: str) -> bool:
    return sentence.split()[0].rstrip(",;") in DEEDS.split()


@every_condition
def test_every_template_formats_with_its_parameters(condition: str) -> None:
    template = conditions()[condition]["message"]
    names = placeholders(template)
    assert all(name.isidentifier() for name in names)
    error = errors.DeltaError(condition, **{name: f"<{name} here>" for name in names})
    assert all(f"<{name} here>" in str(error) for name in names)
    assert not re.search(r"[{}]", str(error))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_part_of_a_condition_has_the_sqlstate_of_the_whole() -> None:
    for name, entry in conditions().items():
        whole, dot, _ = name.partition(".")
        if dot:
            assert entry["sqlstate"] == conditions()[whole]["sqlstate"], name


def test_conflicts_have_the_sqlstate_of_a_lost_race() -> None:
    for name, entry in conditions().items():
        if name.startswith(("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CH")):
            assert entry["sqlstate"] == "2D521", name


# Where errors are raised


def calls_of_errors() -> Iterator[tuple[str, ast.Call]]:
    """Every call of one of our errors in the package, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name.endswith(("Error", "Exception")) and name in errors.__all__:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


def literal_conditions(node: ast.expr) -> list[str]:
    """The conditions an argument can be: a literal, or either side of `a if x else b`."""
    match node:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            return literal_conditions(body) + literal_conditions(orelse)
    return []


def test_every_condition_that_is_raised_exists_and_gets_its_parameters() -> None:
    problems = []
    for place, call in calls_of_errors():
        if not call.args:
            continue
        for condition in literal_conditions(call.args[0]):
            if condition not in conditions():
                problems.append(f"{place}: {condition} is not in conditions.json")
                continue
            given = {keyword.arg for keyword in call.keywords}
            if None in given:  # **parameters: only a run can tell
                continue
            if missing := placeholders(conditions()[condition]["message"]) - given:
                problems.append(f"{place}: {condition} lacks {', '.join(sorted(missing))}")
    assert problems == []


def test_every_name_that_looks_like_a_condition_is_one() -> None:
    problems = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str() as text) if re.fullmatch(
                    r"DELTA_[A-Z0-9_]+(\.[A-Z0-9_]+)?", text
                ):
                    if text not in conditions():
                        problems.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {text}")
    assert problems == []
