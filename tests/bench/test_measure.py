from __future__ import annotations

import pytest
from bench.measure import OURS, Bar, DifferentAnswersError, Result, Timed, absolute, in_turns


def test_peers_take_turns_and_warm_up_rounds_are_not_counted() -> None:
    order = []

    def work(name: str) -> Timed:
        order.append(name)
        return Timed(float(len(order)))

    works = {OURS: lambda: work("a"), "peer": lambda: work("b")}
    times = in_turns("name", works, rounds=2, warm_up=1)
    assert "".join(order) == "baabba", "who goes first changes from round to round"
    assert times == {OURS: [3.0, 6.0], "peer": [4.0, 5.0]}


def test_times_of_different_answers_are_not_compared() -> None:
    works = {
        OURS: lambda: Timed(1.0, [1]),
        "silent": lambda: Timed(1.0),
        "peer": lambda: Timed(1.0, [2]),
    }
    with pytest.raises(DifferentAnswersError, match=r"name: peer gives \[2\], ours gives \[1\]"):
        in_turns("name", works, rounds=1)


def test_a_bar_is_a_ratio_to_a_peer_or_a_number_of_its_own() -> None:
    result = Result(
        workload="name",
        unit="s",
        values={OURS: 1.0, "slow": 4.0, "fast": 0.8},
        bars=[Bar(peer="slow", at_most=0.25), Bar(peer="fast", at_most=1.2)],
    )
    assert [result.meets(bar) for bar in result.bars] == [True, False]
    assert not result.is_met
    assert result.peers == ["slow", "fast"]
    assert absolute("name", 5.0, "ms", 5.0).is_met
    assert not absolute("name", 5.1, "ms", 5.0).is_met
