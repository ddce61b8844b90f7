"""The four documents that the product began with, sentence by sentence.

They are about actions, CONVERT TO DELTA, the envelope of a line, and the sink of a stream.  Each
row of `tests/docs/seeds` is a claim of one: the lines it is made in, the name of ours it is about,
and a check that is named after it.  Where the documents are at hand, every line of them that says
something must have its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.docs.seeds import action, convert, envelope, sink
from tests.docs.seeds.action import Table
from tests.docs.seeds.claims import Claim, Claims, check_name
from tests.docs.seeds.convert import Conversions
from tests.docs.seeds.sink import Streams

# A clone may lack them.
SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
CLAIMS: list[Claims] = [action.CLAIMS, convert.CLAIMS, envelope.CLAIMS, sink.CLAIMS]

# Headings, fences, rules, notes' titles, anchors, pointers to other documents.
_SAYS_NOTHING = re.compile(
    r"\s*(#.*|```.*|-+(\|-+)?|\?\?\?.*|!!!.*|(<span id=\"[\w-]+\">)+|Learn more in .*)?\s*"
)
# A numbered heading of the third document; what follows on its line is a claim.
_NUMBERED_HEADING = re.compile(r"[一二三]、\w*")


def _sentence(claim: object) -> str:
    return claim.sentence if isinstance(claim, Claim) else str(claim)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("seeds") / "tä ble 100%")


@pytest.fixture(scope="module")
def converted(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conversions]:
    yield Conversions.make(enable(spark), tmp_path_factory.mktemp("convert"))
    spark.sql("DROP TABLE IF EXISTS seeds_converted")


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return Streams.make(enable(spark), tmp_path_factory.mktemp("streams"))


@pytest.mark.parametrize("claim", action.CLAIMS, ids=_sentence)
def test_of_actions_it_is_true_that(claim: Claim, table: Table) -> None:
    claim.holds(table)


@pytest.mark.parametrize("claim", envelope.CLAIMS, ids=_sentence)
def test_of_the_envelope_it_is_true_that(claim: Claim) -> None:
    claim.holds(None)


@pytest.mark.parametrize("claim", convert.CLAIMS, ids=_sentence)
def test_of_convert_to_delta_it_is_true_that(
    claim: Claim, converted: Conversions, spark: SparkSession
) -> None:
    claim.holds(converted)


@pytest.mark.parametrize("claim", sink.CLAIMS, ids=_sentence)
def test_of_the_sink_it_is_true_that(claim: Claim, streams: Streams, spark: SparkSession) -> None:
    claim.holds(streams)


@pytest.mark.parametrize("claim", [claim for each in CLAIMS for claim in each], ids=_sentence)
def test_a_claim_is_about_a_name_of_ours(claim: Claim) -> None:
    check_name(claim.ours)


def test_claims_have_the_order_and_the_lines_of_their_documents() -> None:
    for claims in CLAIMS:
        firsts = [min(claim.lines) for claim in claims]
        assert firsts == sorted(firsts)
        numbers = [number for claim in claims for number in claim.lines]
        assert len(numbers) == len(set(numbers))


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not beside us")
@pytest.mark.parametrize("number", range(4))
def test_every_line_of_a_document_that_says_something_has_its_claim(number: int) -> None:
    (document,) = SEEDS.glob(f"{number:03d}_*.txt")
    lines = dict(enumerate(document.read_text(encoding="utf-8").splitlines(), 1))
    telling = {
        n
        for n, line in lines.items()
        if not _SAYS_NOTHING.fullmatch(line) and not _NUMBERED_HEADING.fullmatch(line)
    }
    claimed = {n for claim in CLAIMS[number] for n in claim.lines}
    assert {n: lines[n] for n in telling - claimed} == {}
    assert claimed - set(lines) == set()
