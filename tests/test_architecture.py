"""The shape of the code: what style guides ask for and reviewers forget to look at."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import string
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyspark_delta
from pyspark_delta import errors
from pyspark_delta.errors import DeltaError, conditions

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pyspark_delta"
MODULES = sorted(SOURCE.rglob("*.py"))
# Where `make install` puts pandas, apart from what the kernel needs.
FRAMES = Path(sys.prefix) / "frames"
MOST_LINES_OF_A_MODULE = 500
MOST_LINES_OF_A_FUNCTION = 60
MOST_MODULES_OF_A_PACKAGE = 25
# PROTOCOL.md has as many nouns.
LARGE_PACKAGES = {"src/pyspark_delta/kernel/protocol"}
LEAST_LINES_OF_A_MODULE = 40
SMALL_MODULES = {
    "src/pyspark_delta/kernel/machine.py": "the only defaults for clock and randomness",
    "src/pyspark_delta/tables.py": "the name under which programs import DeltaTable",
}

# A name that comes or goes here is a change for users: CHANGELOG.md tells them.
PUBLIC_NAMES = {
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "ConvertReport",
    "ConvertToDeltaCommand",
    "DefaultSource",
    "DeltaConcurrentModificationException",
    "DeltaError",
    "DeltaLog",
    "DeltaOptions",
    "DeltaSink",
    "DeltaTable",
    "MetadataChangedException",
    "OptimisticTransaction",
    "ProtocolChangedException",
    "Snapshot",
    "configure_spark_with_delta_pip",
    "disable",
    "enable",
    "install_as_delta",
    "table_changes",
    "table_changes_by_path",
}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(params=MODULES, ids=_name)
def module(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_a_module_fits_in_one_reading(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES_OF_A_MODULE, f"{_name(module)} has {lines} lines: split it"


def test_a_function_fits_on_one_screen(module: Path) -> None:
    long = [
        f"{_name(module)}:{node.lineno} {node.name} has {lines} lines"
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    ]
    assert not long


@pytest.mark.parametrize("package", sorted({path.parent for path in MODULES}), ids=_name)
def test_a_package_can_be_overlooked(package: Path) -> None:
    modules = [path for path in package.glob("*.py") if path.name != "__init__.py"]
    most = len(modules) if _name(package) in LARGE_PACKAGES else MOST_MODULES_OF_A_PACKAGE
    assert len(modules) <= most, f"{_name(package)} has {len(modules)} modules: give it packages"


def test_a_module_is_worth_opening(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    if module.name != "__init__.py" and _name(module) not in SMALL_MODULES:
        assert lines >= LEAST_LINES_OF_A_MODULE, f"{_name(module)} has {lines} lines: merge it"


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_/]+)`", page))
    packages = {path.parent.relative_to(SOURCE).as_posix() for path in MODULES} - {"."}
    # A package within another may be named by the end of its path, and names those around it.
    missing = [
        package
        for package in packages
        if not any(f"/{package}".endswith(f"/{name}") or name.startswith(package) for name in named)
    ]
    assert sorted(missing) == []


def test_a_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))


def test_a_module_is_named_after_a_thing(module: Path) -> None:
    attics = {"utils", "util", "common", "helpers", "helper", "misc", "core"}
    words = set(re.split(r"[/_.]", _name(module)))
    assert not words & attics, "a homeless function shows a missing noun"


def test_only_the_jvm_package_knows_py4j(module: Path) -> None:
    if "jvm" in module.relative_to(SOURCE).parts:
        return
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert "py4j" not in imported


def test_a_package_file_holds_a_docstring_and_re_exports_only(module: Path) -> None:
    if module.name != "__init__.py" or module.parent == SOURCE:
        return
    body = ast.parse(module.read_text(encoding="utf-8")).body
    other = [ast.unparse(node) for node in body if not _is_docstring_or_re_export(node)]
    assert not other


def _is_docstring_or_re_export(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False


@pytest.mark.parametrize(
    "statement",
    [
        "import pyspark_delta.kernel",
        "from pyspark_delta import DeltaLog, OptimisticTransaction, Snapshot",
        "from pyspark_delta.actions import AddFile",
    ],
)
def test_the_kernel_is_imported_without_spark(statement: str) -> None:
    script = (
        f"import sys; {statement}; "
        "print(*sorted({'pyspark', 'py4j', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


@pytest.mark.skipif(not FRAMES.is_dir(), reason="pandas is not installed")
def test_the_kernel_is_imported_without_pandas_where_it_is_installed() -> None:
    script = (
        "import importlib.util, sys; from pyspark_delta import DeltaLog; "
        "assert importlib.util.find_spec('pandas'); "
        "print(*sorted({'pyspark', 'py4j', 'pandas'} & set(sys.modules)))"
    )
    paths = filter(None, [str(FRAMES), os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_no_kernel_module_imports_spark() -> None:
    names = [
        found.name
        for found in pkgutil.walk_packages([str(SOURCE / "kernel")], "pyspark_delta.kernel.")
    ]
    script = (
        f"import importlib, sys; [importlib.import_module(name) for name in {names!r}]; "
        "print(*sorted({'pyspark', 'py4j', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_code_of_ours_gives_every_action_its_time_and_every_table_its_id(module: Path) -> None:
    # The defaults read a clock and make an id; they are for programs of users.
    bare = [
        f"{_name(module)}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        if (isinstance(node.func, ast.Attribute) and node.func.attr == "remove" and not node.args)
        or (
            ast.unparse(node.func) == "Metadata"
            and not any(keyword.arg in ("id", None) for keyword in node.keywords)
        )
    ]
    assert not bare


def test_the_public_names_are_these() -> None:
    assert set(pyspark_delta.__all__) == PUBLIC_NAMES
    assert all(getattr(pyspark_delta, name).__name__ == name for name in PUBLIC_NAMES)


def test_every_error_can_be_caught_by_its_public_name() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, DeltaError)
    }
    assert classes == set(errors.__all__)


_CONDITION = re.compile(r"DELTA_[A-Z0-9_]+(\.[A-Z0-9_]+)?")


def _condition_in(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if _CONDITION.fullmatch(node.value) else None
    return None


def test_a_condition_that_is_raised_has_a_sentence(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    named = {found for node in ast.walk(tree) if (found := _condition_in(node))}
    assert named - set(conditions()) == set()


def test_an_error_is_given_every_parameter_of_its_sentence(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    missing = [
        f"{_name(module)}:{node.lineno} {condition}: {', '.join(sorted(lacking))}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and (condition := _condition_in(node.args[0]))
        if all(keyword.arg for keyword in node.keywords)  # none that come as **parameters
        if condition in conditions()
        if (lacking := _parameters(condition) - {str(keyword.arg) for keyword in node.keywords})
    ]
    assert not missing


def _parameters(condition: str) -> set[str]:
    parts = string.Formatter().parse(conditions()[condition]["message"])
    return {name for _, name, _, _ in parts if name}


def test_the_conditions_are_sorted_one_to_a_line() -> None:
    lines = (SOURCE / "conditions.json").read_text(encoding="utf-8").splitlines()
    names = [line.split('"')[1] for line in lines[1:-1]]
    assert names == sorted(conditions())


def test_the_lock_file_holds_names_versions_and_hashes_only() -> None:
    line = re.compile(r"([a-z0-9.-]+==[^\s;]+( ; [^\\]+)?|    --hash=sha256:[0-9a-f]{64})( \\)?")
    for lock in ROOT.glob("requirements*.lock"):
        others = [
            text
            for text in lock.read_text(encoding="utf-8").splitlines()
            if not line.fullmatch(text)
        ]
        assert not others, lock.name


def test_the_lock_file_names_every_dependency() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    wanted = {
        re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()
        for requirement in (
            *project["build-system"]["requires"],
            *project["project"]["dependencies"],
            *project["dependency-groups"]["dev"],
        )
    }
    groups = {"requirements.lock": wanted}
    for group in ("connect", "dbt", "frames"):
        names = project["dependency-groups"][group]
        groups[f"requirements-{group}.lock"] = {re.split(r"[<>=]", name)[0] for name in names}
    for file_name, names in groups.items():
        lock = (ROOT / file_name).read_text(encoding="utf-8")
        locked = set(re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE))
        assert names - locked == set(), file_name


def test_a_target_of_make_runs_every_slow_test() -> None:
    # Spelt so that it does not find itself.
    mark = re.compile(r"\bmark\.(?:slow)\b")
    slow = [path for path in (ROOT / "tests").rglob("*.py") if mark.search(_text(path))]
    targets = [_commands(name) for name in ("fuzz", "dbt", "soak")]
    texts = [*targets, _text(ROOT / "scripts" / "interop.sh")]
    marked = re.compile(r"-m (slow|.slow or not slow.)")
    runs = [run for text in texts for run in text.splitlines() if marked.search(run)]
    places = {ROOT / word for run in runs for word in run.split() if word.startswith("tests/")}
    assert len(runs) == len(texts)
    assert [_name(place) for place in places if not place.exists()] == []
    orphans = [_name(path) for path in slow if not places & {path, *path.parents}]
    assert len(slow) > 20
    assert orphans == []


def _commands(target: str) -> str:
    """What a target of make would run."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--dry-run", target]
    return subprocess.run(
        command, cwd=ROOT, env=kept, capture_output=True, text=True, check=True
    ).stdout


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# Spelt so that no pattern finds itself.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(?:work|farm|root)/",
    "the host of a package registry": (
        r"\b(?:pypi|pythonhosted|artifactory|jfrog|nexus)[\w-]*(?:\.[\w-]+)*\.(?:org|com|io|net)\b"
        r"|\bindex[-_]url\s*=|\bfind[-_]links\s*="
    ),
    "a mark of unfinished work": r"\b(?:TO(?:)DO|FIX(?:)ME)\b",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_of_the_project_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in _project_files()
        for number, line in _lines(path)
        if pattern.search(line)
    ]
    assert not found


def _project_files() -> list[Path]:
    """What git tracks or would track; every file outside of hidden folders where git is absent."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file()]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # not a text
        return
    yield from enumerate(text.splitlines(), 1)
