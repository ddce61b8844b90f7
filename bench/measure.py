"""Timing in turns: every peer once per round, so that the machine's moods hit all of them alike.

Nothing here knows what is measured.  A work times itself and may give an answer; peers that
answer differently are no peers, and their times are not compared.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

OURS = "ours"


class DifferentAnswersError(Exception):
    """Two peers did the same work and came to different results."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What one run of a work took, and what came out."""

    seconds: float
    answer: object = None


Work = Callable[[], Timed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What our value must not exceed: so many times a peer's, or without one so much."""

    at_most: float
    peer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload's numbers: what it took ours and each peer, and the bars for ours.

    `tree` is the version of the code that was measured, where it is known.
    """

    workload: str
    unit: str
    values: Mapping[str, float]
    bars: Sequence[Bar] = ()
    note: str = ""
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    tree: str = ""

    @property
    def ours(self) -> float:
        return self.values[OURS]

    @property
    def peers(self) -> list[str]:
        return [name for name in self.values if name != OURS]

    def ratio(self, peer: str) -> float:
        return self.ours / self.values[peer]

    def meets(self, bar: Bar) -> bool:
        return (self.ours if bar.peer is None else self.ratio(bar.peer)) <= bar.at_most

    @property
    def is_met(self) -> bool:
        return all(self.meets(bar) for bar in self.bars)


def timed(work: Callable[[], object]) -> Timed:
    """One run by this process's clock."""
    start = time.perf_counter()
    answer = work()
    return Timed(time.perf_counter() - start, answer)


def in_turns(
    name: str, works: Mapping[str, Work], *, rounds: int, warm_up: int = 0
) -> dict[str, list[float]]:
    """Seconds of each peer in each round.  Who goes first changes from round to round."""
    names = list(works)
    times: dict[str, list[float]] = {each: [] for each in names}
    bar = tqdm(range(-warm_up, rounds), desc=name, disable=not sys.stderr.isatty(), leave=False)
    for turn in bar:
        answers = {}
        first = turn % len(names)
        for each in names[first:] + names[:first]:
            done = works[each]()
            answers[each] = done.answer
            if turn >= 0:
                times[each].append(done.seconds)
        check_equal(name, answers)
    return times


def check_equal(name: str, answers: Mapping[str, object]) -> None:
    """Raise unless all answers that were given are the same."""
    given = {peer: answer for peer, answer in answers.items() if answer is not None}
    for peer, answer in given.items():
        first = next(iter(given))
        if answer != given[first]:
            raise DifferentAnswersError(
                f"{name}: {peer} gives {_short(answer)}, {first} gives {_short(given[first])}."
            )


def median_result(
    name: str, times: Mapping[str, Sequence[float]], bars: Sequence[Bar], note: str = ""
) -> Result:
    """Medians of what `in_turns` gave."""
    return Result(
        workload=name,
        unit="s",
        values={peer: statistics.median(seconds) for peer, seconds in times.items()},
        bars=bars,
        note=note,
        samples=times,
    )


def against(
    name: str,
    peer: str,
    at_most: float,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 5,
) -> Result:
    """Ours and one peer, both in this process."""
    works = {OURS: lambda: _without_answer(ours), peer: lambda: _without_answer(theirs)}
    times = in_turns(name, works, rounds=rounds)
    return median_result(name, times, [Bar(at_most=at_most, peer=peer)])


def absolute(
    name: str,
    value: float,
    unit: str,
    at_most: float,
    note: str = "",
    *,
    samples: Sequence[float] = (),
) -> Result:
    """A number with a bar of its own, beside which there is no peer."""
    return Result(
        workload=name,
        unit=unit,
        values={OURS: value},
        bars=[Bar(at_most=at_most)],
        note=note,
        samples={OURS: samples} if samples else {},
    )


def _without_answer(work: Callable[[], object]) -> Timed:
    return Timed(timed(work).seconds)


def _short(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 200 else f"{text[:200]}..."
