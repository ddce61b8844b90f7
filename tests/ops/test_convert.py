from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from pyspark_delta.errors import PartitionValueError, SchemaError
from pyspark_delta.kernel.ops.convert.files import (
    PartitionRules,
    construct_table_schema,
    create_add_file,
    given_partition_values,
    parsed_partition,
    partition_values,
    stored_partition_value,
)
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
)

YEAR_CITY = StructType((StructField("year", INTEGER), StructField("city", STRING)))


def test_directories_are_unescaped_and_hives_name_for_null_is_null() -> None:
    assert parsed_partition("a=x%3Ay%2Fz/b=__HIVE_DEFAULT_PARTITION__/f.parquet") == (
        ("a", "x:y/z"),
        ("b", None),
    )
    assert parsed_partition("f.parquet") == ()
    assert parsed_partition("ä%20b=100%/f") == (("ä b", "100%"),)


def test_directories_count_from_the_file_up_to_a_plain_one() -> None:
    assert parsed_partition("plain/a=1/below/f") == (("a", "1"),)
    assert parsed_partition("a=1/plain/b=2/f") == (("b", "2"),)


def test_values_stand_under_the_names_of_the_schema() -> None:
    assert partition_values("YEAR=2024/City=Z%C3%BC/f", YEAR_CITY) == {
        "year": "2024",
        "city": "ZÃ¼",
    }
    assert partition_values("f.parquet", StructType(())) == {}


@pytest.mark.parametrize(
    ("path", "expected", "found"),
    [
        ("year=2024/f", ("[`year`, `city`]", 2), ("[`year`]", 1)),
        ("f", ("[`year`, `city`]", 2), ("[]", 0)),
        ("a=1/b=2/c=3/f", ("[`year`, `city`]", 2), ("[`a`, `b`, `c`]", 3)),
    ],
)
def test_a_path_with_another_number_of_columns_is_refused(
    path: str, expected: tuple[str, int], found: tuple[str, int]
) -> None:
    with pytest.raises(PartitionValueError) as caught:
        partition_values(path, YEAR_CITY)
    assert caught.value.condition == "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"
    parameters = caught.value.parameters
    assert (parameters["expectedCols"], int(parameters["expectedColsSize"])) == expected
    assert (parameters["parsedCols"], int(parameters["parsedColsSize"])) == found


def test_partitions_without_a_schema_are_refused() -> None:
    with pytest.raises(PartitionValueError, match="year"):
        partition_values("year=2024/f", StructType(()))


def test_a_path_with_a_column_of_another_name_is_refused() -> None:
    with pytest.raises(PartitionValueError) as caught:
        partition_values("year=2024/town=x/f", YEAR_CITY)
    assert caught.value.condition == "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"
    assert caught.value.parameters["parsedCol"] == "`town`"
    assert caught.value.parameters["expectedCol"] == "`city`"
    with pytest.raises(PartitionValueError, match="Year"):
        partition_values("Year=1/city=x/f", YEAR_CITY, PartitionRules(case_sensitive=True))


@pytest.mark.parametrize(
    ("text", "data_type", "stored"),
    [
        ("007", INTEGER, "7"),
        (" 12 ", LONG, "12"),
        ("1.9", INTEGER, "1"),
        ("yes", BOOLEAN, "true"),
        ("0", BOOLEAN, "false"),
        ("1.10", DOUBLE, "1.1"),
        ("1.005", DecimalType(10, 2), "1.01"),
        ("2024-1-2", DATE, "2024-01-02"),
        ("2024", DATE, "2024-01-01"),
        ("2024-01-01 12:00:00", TIMESTAMP, "2024-01-01T11:00:00.000000Z"),
        ("2024-01-01 12:30", TIMESTAMP_NTZ, "2024-01-01 12:30:00"),
        (" x ", STRING, " x "),
        ("", INTEGER, None),
        (None, STRING, None),
    ],
)
def test_values_are_stored_as_the_protocol_spells_them(
    text: str | None, data_type: DataType, stored: str | None
) -> None:
    rules = PartitionRules(zone=ZoneInfo("Europe/Paris"))
    assert stored_partition_value(text, data_type, rules) == stored


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("x", INTEGER),
        ("300", BYTE),
        ("maybe", BOOLEAN),
        ("2024-13-01", DATE),
        ("12345.6", DecimalType(5, 2)),
        ("soon", TIMESTAMP),
        ("1_0", LONG),
    ],
)
def test_a_value_that_its_type_does_not_have_is_refused_or_null(
    text: str, data_type: DataType
) -> None:
    with pytest.raises(PartitionValueError) as caught:
        stored_partition_value(text, data_type)
    assert caught.value.condition == "DELTA_FAILED_CAST_PARTITION_VALUE"
    assert caught.value.parameters["value"] == text
    lenient = PartitionRules(ignore_cast_failure=True)
    assert stored_partition_value(text, data_type, lenient) is None


def test_values_of_a_catalog_are_checked_alike_and_null_stays_null() -> None:
    given = {"YEAR": "02024", "city": "__HIVE_DEFAULT_PARTITION__"}
    assert given_partition_values(given, YEAR_CITY) == {"year": "2024", "city": None}
    with pytest.raises(PartitionValueError, match="x"):
        given_partition_values({"year": "x", "city": None}, YEAR_CITY)


def test_partition_columns_go_behind_the_data_or_keep_their_place_in_it() -> None:
    data = StructType((StructField("v", STRING), StructField("Year", STRING)))
    table = construct_table_schema(data, YEAR_CITY)
    assert table.simple_string == "struct<v:string,year:int,city:string>"
    assert construct_table_schema(data) == data


def test_names_that_come_twice_are_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        construct_table_schema(StructType((StructField("a", LONG), StructField("A", LONG))))
    assert caught.value.condition == "DELTA_DUPLICATE_COLUMNS_FOUND.CONVERT_TO_DELTA"
    twice = StructType((StructField("p", LONG), StructField("P", LONG)))
    with pytest.raises(SchemaError) as caught:
        construct_table_schema(StructType((StructField("a", LONG),)), twice)
    assert caught.value.condition == "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_SCHEMA"


def test_paths_are_encoded_once_and_uris_stay() -> None:
    add = create_add_file(
        "p=a%20b/ü x.parquet", size=7, modification_time=9, partition_values={"p": "a b"}
    )
    assert add.path == "p=a%2520b/%C3%BC%20x.parquet"
    assert (add.size, add.modification_time, add.data_change, add.stats) == (7, 9, True, None)
    uri = "file:///other%20place/f.parquet"
    outside = create_add_file(
        uri, is_uri=True, size=1, modification_time=1, partition_values={}, stats="{}"
    )
    assert (outside.path, outside.stats) == (uri, "{}")
