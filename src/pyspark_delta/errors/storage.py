"""What a store may raise.  Foreign exceptions become these at the store's door."""

from __future__ import annotations

from pyspark_delta.errors.base import DeltaError


class StorageError(DeltaError):
    """A store did not do what was asked, and the outcome may be unknown."""

    def __init__(self, condition: str = "DELTA_STORAGE_ERROR", /, **parameters: object) -> None:
        super().__init__(condition, **parameters)


class FileAlreadyExistsError(StorageError, FileExistsError):
    """`create` found the file there: another writer won, or an earlier try of one's own did."""

    def __init__(
        self, condition: str = "DELTA_STORAGE_FILE_ALREADY_EXISTS", /, **parameters: object
    ) -> None:
        super().__init__(condition, **parameters)


class FileMissingError(StorageError, FileNotFoundError):
    """A file that was asked for is not there."""

    def __init__(
        self, condition: str = "DELTA_STORAGE_FILE_NOT_FOUND", /, **parameters: object
    ) -> None:
        super().__init__(condition, **parameters)


class NothingWrittenError(StorageError):
    """A write that certainly did not happen, for a reason that may pass: it may be repeated."""

    def __init__(
        self, condition: str = "DELTA_STORAGE_NOT_WRITTEN", /, **parameters: object
    ) -> None:
        super().__init__(condition, **parameters)


class StorageRefusedError(NothingWrittenError):
    """A write that the store refused: nothing was written, and repeating it does not help."""

    def __init__(self, condition: str = "DELTA_STORAGE_REFUSED", /, **parameters: object) -> None:
        super().__init__(condition, **parameters)


class UnsupportedSchemeError(StorageError):
    """No store serves this kind of address."""

    def __init__(
        self, condition: str = "DELTA_STORAGE_UNSUPPORTED_SCHEME", /, **parameters: object
    ) -> None:
        super().__init__(condition, **parameters)
