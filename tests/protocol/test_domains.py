from __future__ import annotations

import pytest

from pyspark_delta.errors import (
    CorruptLogError,
    InvalidActionsError,
)
from pyspark_delta.kernel.protocol.actions import DomainMetadata
from pyspark_delta.kernel.protocol.domains import (
    check_domains,
    clustering_columns,
    clustering_domain,
    row_id_high_water_mark,
    row_tracking_domain,
    tombstone,
)


def domain(name: str, configuration: str = "{}", removed: bool = False) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration=configuration, removed=removed)


def test_a_tombstone_keeps_the_configuration() -> None:
    assert tombstone(domain("a", "x")) == domain("a", "x", removed=True)


def test_domains_need_their_feature() -> None:
    check_domains([], ())
    check_domains([domain("a")], {"domainMetadata"})
    with pytest.raises(InvalidActionsError) as caught:
        check_domains([domain("b"), domain("a")], {"appendOnly"})
    assert caught.value.condition == "DELTA_DOMAIN_METADATA_NOT_SUPPORTED"
    assert caught.value.parameters == {"domainNames": "a, b"}


def test_a_domain_comes_once_in_a_commit() -> None:
    with pytest.raises(InvalidActionsError) as caught:
        check_domains([domain("a"), domain("a", removed=True)], {"domainMetadata"})
    assert caught.value.condition == "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR"


def test_clustering_is_a_list_of_name_paths_with_the_domains_name() -> None:
    entry = clustering_domain([("a",), ("b", "c")])
    assert entry.json == (
        '{"domainMetadata":{"domain":"delta.clustering","configuration":'
        '"{\\"clusteringColumns\\":[[\\"a\\"],[\\"b\\",\\"c\\"]],'
        '\\"domainName\\":\\"delta.clustering\\"}","removed":false}}'
    )
    assert clustering_columns({"delta.clustering": entry}) == (("a",), ("b", "c"))


def test_a_flat_list_of_clustering_columns_is_read_too() -> None:
    entry = domain("delta.clustering", '{"clusteringColumns":["a","b.c"]}')
    assert clustering_columns({"delta.clustering": entry}) == (("a",), ("b.c",))


def test_a_table_without_the_domain_is_not_clustered_and_one_with_no_columns_is() -> None:
    assert clustering_columns({}) is None
    assert clustering_columns({"delta.clustering": clustering_domain([])}) == ()


def test_the_row_id_mark_is_written_with_the_domains_name() -> None:
    entry = row_tracking_domain(41)
    assert entry.configuration == '{"rowIdHighWaterMark":41,"domainName":"delta.rowTracking"}'
    assert row_id_high_water_mark({"delta.rowTracking": entry}) == 41
    assert row_id_high_water_mark({}) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "x", "{}", "[" * 100_000),
        '{"clusteringColumns":1}',
        '{"clusteringColumns":[[]]}',
        '{"clusteringColumns":[[1]]}',
        '{"clusteringColumns":[null]}',
    ],
)
def test_a_clustering_domain_that_cannot_be_read_is_a_typed_error(text: str) -> None:
    with pytest.raises(CorruptLogError) as caught:
        clustering_columns({"delta.clustering": domain("delta.clustering", text)})
    assert caught.value.condition == "DELTA_INVALID_DOMAIN_METADATA"
    assert caught.value.parameters["domainName"] == "delta.clustering"


@pytest.mark.parametrize("mark", ["null", '"1"', "true", "-2", "9223372036854775808", "1.5"])
def test_a_row_id_mark_that_is_no_row_id_is_a_typed_error(mark: str) -> None:
    entry = domain("delta.rowTracking", f'{{"rowIdHighWaterMark":{mark}}}')
    with pytest.raises(CorruptLogError) as caught:
        row_id_high_water_mark({"delta.rowTracking": entry})
    assert caught.value.condition == "DELTA_INVALID_DOMAIN_METADATA"
