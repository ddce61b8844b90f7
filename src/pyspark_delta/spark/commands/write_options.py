"""The options of a batch write, read once: names ignore case, values are checked.

>>> WriteOptions.parse({"MERGESCHEMA": "true", "delta.appendOnly": "true"}).merge_schema
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError

_BOOLEANS = {"true": True, "false": False}
# Options that this command does not have yet must not be passed over: they say which rows go.
_UNSUPPORTED = ("replaceWhere", "replaceOn", "replaceUsing")
# Spark's own writer understands these.
_FILE_OPTIONS = {"compression": "compression", "maxrecordsperfile": "maxRecordsPerFile"}
_PROPERTY_PREFIX = "delta."


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a user asked of a write beside its data.

    `merge_schema` and `overwrite_schema` are None when the user did not say.  `txn` is the
    application and its version that make a write idempotent; `properties` are those of a new
    table; `file_options` go to Spark's Parquet writer.
    """

    merge_schema: bool | None = None
    overwrite_schema: bool | None = None
    data_change: bool = True
    user_metadata: str | None = None
    txn: tuple[str, int] | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    file_options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """The options that a writer was given; PropertyError for a value that means nothing."""
        lowered = {key.lower(): str(value) for key, value in options.items()}
        for name in _UNSUPPORTED:
            if name.lower() in lowered:
                raise OperationNotAllowedError(
                    "DELTA_OPERATION_NOT_ALLOWED", operation=f"The option {name}"
                )
        if lowered.get("partitionoverwritemode", "static").lower() != "static":
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED", operation="Dynamic partition overwrite"
            )
        data_change = _flag(lowered, "dataChange")
        return cls(
            merge_schema=_flag(lowered, "mergeSchema"),
            overwrite_schema=_flag(lowered, "overwriteSchema"),
            data_change=data_change is not False,
            user_metadata=lowered.get("usermetadata"),
            txn=_txn(lowered),
            properties={
                key: str(value)
                for key, value in options.items()
                if key.lower().startswith(_PROPERTY_PREFIX)
            },
            file_options={
                spark_name: lowered[name]
                for name, spark_name in _FILE_OPTIONS.items()
                if name in lowered
            },
        )


def _flag(lowered: Mapping[str, str], name: str) -> bool | None:
    text = lowered.get(name.lower())
    if text is None:
        return None
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise _illegal(name, text, "it must be true or false")
    return value


def _txn(lowered: Mapping[str, str]) -> tuple[str, int] | None:
    app_id, version = lowered.get("txnappid"), lowered.get("txnversion")
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise PropertyError(
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS"
        )
    if not version.isascii() or not version.isdecimal() or int(version) >= 2**63:
        raise _illegal("txnVersion", version, "it must be a whole number, not negative")
    return app_id, int(version)


def _illegal(name: str, text: str, explain: str) -> PropertyError:
    return PropertyError("DELTA_ILLEGAL_OPTION", name=name, input=text, explain=explain)
