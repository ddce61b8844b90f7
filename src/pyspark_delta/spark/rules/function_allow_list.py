"""The Spark functions that SQL stored in a table may call, and the reasons against the others.

The author of a table chooses that SQL, and everyone who writes to the table evaluates it, so only
listed functions are allowed.  The tables below have every function, scalar or table function, of
Spark's registries (4.2 and 4.3); a test fails for one that is in none of them.  A function that is
not listed raises.

>>> refusal("upper", ())
>>> refusal("reflect", ())
'it runs code of the JVM'
>>> refusal("from_xml", (None, None, {"rowValidationXSDPath": "http://h/a.xsd"}))
'its option rowValidationXSDPath is not on the list of harmless ones'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# The value depends only on the arguments.
_OF_ONE_ROW = """
    ! % & * + - / < << <= <=> = == > >= >> >>> ^ | ~ and between div in like ilike not or regexp
    regexp_like rlike equal_null isnan isnotnull isnull

    coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull

    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint

    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc
    degrees e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod
    negative pi pmod positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh
    try_add try_divide try_mod try_multiply try_subtract unhex width_bucket

    bit_count bit_get bitmap_bit_position bitmap_bucket_number bitmap_count getbit shiftleft
    shiftright shiftrightunsigned

    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws
    contains decode elt encode endswith find_in_set format_number format_string from_base32 initcap
    instr is_valid_utf8 jaro_winkler_similarity lcase left len length levenshtein locate lower lpad
    ltrim luhn_check make_valid_utf8 mask octet_length overlay position printf quote regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right
    rpad rtrim sentences soundex space split split_part startswith substr substring substring_index
    to_base32 to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number
    try_validate_utf8 ucase unbase64 upper validate_utf8

    parse_url try_parse_url try_url_decode url_decode url_encode

    aes_decrypt aes_encrypt crc32 hash hmac md5 sha sha1 sha2 try_aes_decrypt xxhash64

    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract
    from_unixtime from_utc_timestamp hour last_day make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month
    monthname months_between next_day quarter second time_bucket time_diff time_from_micros
    time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds to_date to_time to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp
    weekday weekofyear year

    array array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove
    array_repeat array_size array_union arrays_overlap arrays_zip cardinality concat element_at
    flatten get map map_concat map_contains_key map_entries map_from_arrays map_from_entries
    map_keys map_values named_struct reverse sequence size slice sort_array str_to_map struct
    try_element_at

    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform
    transform_keys transform_values zip_with

    get_json_object is_valid_variant is_variant_null json_array_length json_object_keys parse_json
    schema_of_variant to_variant_object try_parse_json try_variant_array_append try_variant_get
    try_variant_insert try_variant_set variant_array_append variant_delete variant_get
    variant_insert variant_set variant_strip_nulls

    st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid

    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize

    assert_true raise_error typeof
"""
# The value is the same for all rows of a query, but differs between queries: user, time, place.
_OF_ONE_QUERY = """
    curdate current_catalog current_database current_date current_path current_schema current_time
    current_timestamp current_timezone current_user localtime localtimestamp now session_user user
    version
"""
# These read nothing but the row.  SQL that must be deterministic is checked on the whole
# expression, by Spark's own flag.
_NOT_DETERMINISTIC = """
    monotonically_increasing_id rand randn random randstr shuffle spark_partition_id uniform uuid
"""

_MANY_ROWS = "it is not computed from one row"
# Rejected functions, by reason.
_REFUSED = {
    "it runs code of the JVM": "java_method reflect try_reflect",
    "it reads descriptors and other files": """
        from_avro from_protobuf schema_of_avro to_avro to_protobuf
    """,
    # With these, Spark lets the parser load external document types.
    "it opens whatever address the DOCTYPE of a document names": """
        xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
        xpath_string
    """,
    "it tells which files the query reads": """
        input_file_block_length input_file_block_start input_file_name
    """,
    # The library behind them reads memory at offsets that are in the bytes.
    "it reads bytes that have to be trusted": """
        approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint
        kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
        kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
        kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
        kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
        kll_sketch_to_string_double kll_sketch_to_string_float theta_difference theta_intersection
        theta_sketch_estimate theta_union tuple_difference_double tuple_difference_integer
        tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
        tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
        tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
        tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
        tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer
    """,
    # Table functions that are no functions of a value too.
    "it makes rows, not a value": """
        collations python_worker_logs range sql_keywords variant_explode variant_explode_outer
    """,
    # Aggregates, window functions, generators, and time windows (which drop and add rows).
    _MANY_ROWS: """
        any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
        approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg
        bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set collect_union
        corr count count_if count_min_sketch covar_pop covar_samp every first first_value
        histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
        kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
        kurtosis last last_value listagg max max_by mean measure median min min_by mode percentile
        percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
        regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness
        some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
        theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
        tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
        tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg
        vector_sum

        counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number

        explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack

        grouping grouping_id session_window window window_time
    """,
}

# Options of parsers that only affect how a text is read or written.  Options that name a file
# (rowValidationXSDPath) or set memory limits (maxColumns and others) are not listed.
_TIMES = "dateFormat locale timeZone timestampFormat timestampNTZFormat"
_READING = "columnNameOfCorruptRecord inferSchema mode preferDate prefersDecimal samplingRatio"
_JSON = f"""{_TIMES} {_READING}
    allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros
    allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames dropFieldIfAllNull
    enableDateTimeParsingFallback ignoreNullFields inferTimestamp lineSep multiLine pretty
    primitivesAsString singleVariantColumn sortKeys writeNonAsciiCharacterAsCodePoint
"""
_CSV = f"""{_TIMES} {_READING}
    charToEscapeQuoteEscaping comment delimiter emptyValue enableDateTimeParsingFallback escape
    escapeQuotes header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace lineSep multiLine nanValue
    negativeInf nullValue positiveInf quote quoteAll sep singleVariantColumn unescapedQuoteHandling
"""
_XML = f"""{_TIMES} {_READING}
    arrayElementName attributePrefix declaration excludeAttribute ignoreNamespace
    ignoreSurroundingSpaces indent nullValue rootTag rowTag singleVariantColumn
    treatEmptyValuesAsNulls validateName valueTag wildcardColName
"""
# Functions with options: the position of the options argument, and the allowed options.
_WITH_OPTIONS = {
    "from_csv": (2, _CSV),
    "from_json": (2, _JSON),
    "from_xml": (2, _XML),
    "schema_of_csv": (1, _CSV),
    "schema_of_json": (1, _JSON),
    "schema_of_xml": (1, _XML),
    "to_csv": (1, _CSV),
    "to_json": (1, _JSON),
    "to_xml": (1, _XML),
}

_REASONS = {name: why for why, names in _REFUSED.items() for name in names.split()}
_HARMLESS = {
    name: (place, frozenset(keys.lower().split())) for name, (place, keys) in _WITH_OPTIONS.items()
}

ALLOWED = frozenset([*f"{_OF_ONE_ROW} {_OF_ONE_QUERY} {_NOT_DETERMINISTIC}".split(), *_HARMLESS])
REFUSED = frozenset(_REASONS)


def refusal(name: str, arguments: Sequence[Mapping[str, str] | None]) -> str | None:
    """Why a table's SQL may not call a Spark function, by lower-case name; None if it may.

    `arguments` has the keys and values of each argument that is a map of literals, else None.
    """
    if name not in ALLOWED:
        return _REASONS.get(name, "it is not on the list of harmless ones")
    place, harmless = _HARMLESS.get(name, (len(arguments), frozenset()))
    for options in arguments[place:]:
        if options is None:
            return "its options are not a map of literals"
        for key in options:
            if key.lower() not in harmless:
                return f"its option {key} is not on the list of harmless ones"
    return None


def is_of_many_rows(name: str) -> bool:
    """Whether a function is rejected only because it reads or makes more than one row."""
    return _REASONS.get(name) == _MANY_ROWS
