"""Generated, identity and default columns: Spark's parser marks them its way, a log Delta's way."""

from __future__ import annotations

from pyspark_delta.kernel.protocol.generated_columns import with_generation_expression
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.types import StructField, StructType

_GENERATION = "GENERATION_EXPRESSION"
_START, _STEP = "identity.start", "identity.step"
_ALLOWS_EXPLICIT = "identity.allowExplicitInsert"
_SPARKS_OWN = (_GENERATION, _START, _STEP, _ALLOWS_EXPLICIT)


def delta_columns(schema: StructType) -> StructType:
    """The columns of a statement as the metadata of a table has them."""
    return StructType(tuple(_delta_column(f) for f in schema))


def _delta_column(f: StructField) -> StructField:
    said = f.metadata
    kept = {key: value for key, value in said.items() if key not in _SPARKS_OWN}
    plain = StructField(f.name, f.data_type, f.nullable, kept)
    if _GENERATION in said:
        return with_generation_expression(plain, said[_GENERATION])
    if _START in said:
        return with_identity(
            plain,
            start=said[_START],
            step=said[_STEP],
            allow_explicit_insert=said[_ALLOWS_EXPLICIT],
        )
    return plain
