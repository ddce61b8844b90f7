"""Fields of Spark's objects that it keeps to itself.

Read and set by reflection, because Spark has no hook there; each one is named in
`tests/spark/test_jvm_seams.py`.
"""

from __future__ import annotations

from typing import Any

from pyspark_delta.errors.table import OperationNotAllowedError


def private_value(java_object: Any, name: str) -> Any:
    """What the field holds."""
    return _field(java_object, name).get(java_object)


def set_private_value(java_object: Any, name: str, value: Any) -> None:
    """Make the field hold something else of its type."""
    _field(java_object, name).set(java_object, value)


def _field(java_object: Any, name: str) -> Any:
    java_class = java_object.getClass()
    while java_class is not None:
        for field in java_class.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field
        java_class = java_class.getSuperclass()
    raise OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED",
        operation=f"A Spark whose {java_object.getClass().getName()} has no {name}",
    )
