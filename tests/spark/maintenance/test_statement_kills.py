"""Maintenance, DDL and what changes log and catalog, killed at any moment, leave all or nothing.

What must be true is in `tests.support.killed_statements`.  In most tests the JVM, and with it the
catalog, outlives the process that is killed; in one both die, and a Hive metastore is left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.support.deaths import FUNCTION, Moment
from tests.support.kill_host import KillHost
from tests.support.killed_statements import CASES

BEFORE_LINK = Moment(step="os.link")
AFTER_LINK = Moment(step="os.link", is_after=True)
WRITTEN = Moment(step="write", is_after=True)
UNKNOWN = Moment(step="createTable")

# Between the files, the log and the catalog; all other moments are left to `make fuzz`.
WINDOWS = {
    "create": (UNKNOWN,),
    "select": (WRITTEN, UNKNOWN),
    "clone": (UNKNOWN,),
    "clone over": (AFTER_LINK,),
    "convert": (Moment(step="alterTable"),),
    "add column": (AFTER_LINK,),
    "drop feature": (Moment(step="os.link", number=4),),
    "vacuum": (Moment(step="os.unlink", number=3),),
    "optimize": (BEFORE_LINK,),
}
NUMBERS = count()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillHost]:
    found = KillHost(tmp_path_factory.mktemp("kills"))
    try:
        found.prepare()
        yield found
    finally:
        found.close()


def kill_all(host: KillHost, case: str, moments: Sequence[Moment]) -> int:
    """Kill a statement at each of some moments; how often it died."""
    died = 0
    for moment in moments:
        number = next(NUMBERS)
        before, after = host.set_up(case, number)
        died += host.kill_amid(case, number, moment)
        host.check(case, number, before, after)
    return died


@pytest.mark.parametrize("case", WINDOWS)
def test_a_statement_killed_between_two_steps_can_be_said_again(host: KillHost, case: str) -> None:
    assert kill_all(host, case, WINDOWS[case]) == len(WINDOWS[case])


def chosen(host: KillHost, case: str, chance: random.Random, times: int) -> list[Moment]:
    """Moments of all kinds: at steps, anywhere in our code, and by the clock."""
    twin = next(NUMBERS)
    host.set_up(case, twin)
    measured = host.measure(case, twin)
    found = []
    for number in range(times):
        match number % 4:
            case 0 | 1:
                at = chance.randint(1, len(measured["steps"]))
                found.append(Moment(number=at, is_after=chance.random() < 0.5))
            case 2:
                at = chance.randint(1, measured["functions"])
                found.append(Moment(step=FUNCTION, number=at))
            case _:
                found.append(Moment(seconds=chance.uniform(0, measured["seconds"])))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_statement_killed_at_any_moment_can_be_said_again(host: KillHost, case: str) -> None:
    moments = chosen(host, case, random.Random(f"{case} 20261"), 12)
    assert kill_all(host, case, moments) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "moment"),
    [
        ("create", UNKNOWN),
        ("select", UNKNOWN),
        ("select", Moment(seconds=1.5)),
        ("clone", UNKNOWN),
        ("clone over", AFTER_LINK),
        ("convert", Moment(step="alterTable")),
        ("drop", Moment(step="sql")),
        ("drop", Moment(seconds=0.3)),
        ("rename", Moment(step="sql", is_after=True)),
        ("rename", Moment(seconds=0.4)),
    ],
    ids=str,
)
def test_a_metastore_outlives_spark(tmp_path: Path, case: str, moment: Moment) -> None:
    with closing(KillHost(tmp_path, is_alone=True)) as host:
        host.prepare()
        before, after = host.set_up(case, 1)
        died = host.kill_amid(case, 1, moment)
    assert died or moment.seconds is not None
    with closing(KillHost(tmp_path, is_alone=True)) as host:
        host.check(case, 1, before, after)
