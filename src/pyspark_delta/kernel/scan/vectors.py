"""Deletion vectors as a scan loads them: from the log, the table, or a place it may also use.

Which bytes a vector is made of is in `protocol.deletion_vectors`; here they are fetched.
PROTOCOL.md, "Deletion Vectors".
"""

from __future__ import annotations

from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import DataFileError, DeletionVectorError
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    locate,
    read_deletion_vector,
)
from pyspark_delta.kernel.scan.locations import Locations


class VectorReader:
    """Loads the vectors of one scan; many of them tend to share a file."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self._sizes: dict[str, int] = {}

    def read(self, descriptor: DeletionVectorDescriptor) -> DeletionVector:
        """The vector that `descriptor` describes.

        DeletionVectorError when it is not what the descriptor says, DataFileError when its file
        is missing, UnsafePathError when that is outside of the table and not allowed.
        """
        location = locate(descriptor)
        if location.inline is not None:
            return read_deletion_vector(descriptor)
        if location.uri is None:
            store, path = self._locations.located(location.path or "", False)
        else:
            store, path = self._locations.open(location.uri)
        address = store.address(path)
        try:
            if address not in self._sizes:
                self._sizes[address] = store.size(path)
            return read_deletion_vector(
                descriptor,
                lambda _, start, length: store.read_range(path, start, length),
                self._sizes[address],
            )
        except FileMissingError as error:
            raise DataFileError("DELTA_FILE_NOT_FOUND", path=address) from error


def descriptor_of(value: dict[str, object] | None) -> DeletionVectorDescriptor | None:
    """The descriptor in a row of the log's `deletionVector` column; None for no vector."""
    if value is None:
        return None
    known = {key: item for key, item in value.items() if item is not None}
    try:
        return DeletionVectorDescriptor.from_json_value(known)
    except ValueError as error:
        raise DeletionVectorError(
            "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR", reason=error
        ) from None
