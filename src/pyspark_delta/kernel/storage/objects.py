"""`ObjectStore`: a table on S3, Google Cloud Storage or Azure, through obstore.

`create` is one conditional PUT that is never repeated here: a retry after a lost response
would find its own first attempt and report a lost race.  The caller reads the file to find out
what happened.  No other module imports obstore or sees its exceptions, and none of their text
reaches a message: servers quote keys and signatures in their responses.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from tempfile import TemporaryFile
from typing import Any, ClassVar

import obstore
import obstore.exceptions as foreign
import obstore.store

from pyspark_delta.errors import (
    DeltaError,
    FileAlreadyExistsError,
    FileMissingError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
)
from pyspark_delta.kernel.storage.base import FileInfo, ListedDirectory, LogStore, by_directory
from pyspark_delta.kernel.storage.storage_options import ClientSettings
from pyspark_delta.kernel.storage.uris import check_directory, check_relative, split_start

_CONCURRENCY = 16
_PAGE = 1000  # the most names that S3, Azure and GCS return per request
_LAST_NAME = "\U0010ffff"  # sorts after every other name
_PART_BYTES = 16 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_WRITES = frozenset({"create", "overwrite"})
_SPOOL_REFUSALS = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS})

_CLIENTS: dict[str, Any] = {
    "s3": obstore.store.S3Store,
    "gs": obstore.store.GCSStore,
    "azure": obstore.store.AzureStore,
}
_SEEKING_PROVIDERS = frozenset({"s3", "gs"})

REASONS: dict[type[BaseException], str] = {
    foreign.PermissionDeniedError: "the store refuses access",
    foreign.UnauthenticatedError: "the store does not accept the credentials",
    foreign.NotSupportedError: "the store does not support this request",
    foreign.InvalidPathError: "the store cannot hold a file of that name",
    foreign.UnknownConfigurationKeyError: "a storage option is not known",
    foreign.AlreadyExistsError: "the store reports a conflict",
    foreign.PreconditionError: "the file changed in the meantime",
    foreign.NotModifiedError: "the store reports an unchanged file",
    foreign.NotFoundError: "there is no such bucket or container",
    foreign.JoinError: "the request was broken off",
    foreign.GenericError: "the request failed",
    foreign.BaseError: "the request failed",
    FileNotFoundError: "there is no such bucket or container",
    PermissionError: "the store refuses access",
    ValueError: "the store cannot hold a file of that name",
    OSError: "the request failed",
    RuntimeError: "the request failed",
    TypeError: "the request failed",
}
"""The meaning of each of obstore's exceptions for a user, by the nearest base class."""

# The only parts of a foreign message that are passed on; no secret has these forms.
_DETAILS = (
    re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z]*)*)"),
    re.compile(r"<Code>([A-Z][A-Za-z]{2,48})</Code>"),
    re.compile(r"\bkind: ((?:Connect|Timeout|TimedOut|Request|Decode|Interrupted|Unexpected)\w*)"),
    re.compile(r"Configuration key: '(\w{1,64})' is not valid"),
)
_OS_ERROR = re.compile(r"os error (\d+)\)|Os \{\s*code: (\d+)")

# Before the status comes a URI without spaces, so that no name can be taken for a status.
_STATUS = re.compile(
    r"Generic [\w ]+ error: Error performing PUT \S+ in [^\n]*? - "
    r"Server returned non-2xx status code: (\d{3})"
)
_NOT_SENT = re.compile(r"HttpError \{\s+kind: Connect,")
# Nothing was written, and a retry may succeed; S3's RequestTimeout is a 400.
_LATER = ("<Code>RequestTimeout</Code>", "<Code>SlowDown</Code>")
_UNDECIDED = frozenset({408, 409, 412})
_REFUSALS = (
    foreign.PermissionDeniedError,
    foreign.UnauthenticatedError,
    foreign.NotSupportedError,
    foreign.InvalidPathError,
    foreign.NotFoundError,
    FileNotFoundError,
    PermissionError,
)

_runtime_pid: int | None = None


class ObjectStore(LogStore):
    """Objects below a bucket's prefix, which `client` is bound to.

    `committer` is a second client for the same prefix that never repeats a request; it is omitted
    only for clients that never do.  With `seeks` a listing can start anywhere at no cost.
    """

    probes_cheaply: ClassVar[bool] = False

    def __init__(
        self, root_uri: str, client: Any, *, committer: Any = None, seeks: bool = False
    ) -> None:
        self.root_uri = root_uri
        self._client = client
        self._committer = client if committer is None else committer
        self._seeks = seeks

    def read(self, path: str) -> bytes:
        check_relative(path, self.root_uri)
        with self._translated("read", path):
            return bytes(obstore.get(self._client, path).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        check_relative(path, self.root_uri)
        if start < 0 or length <= 0:  # not a range that HTTP can express
            return self._empty_range(path, start, length)
        with self._translated("read", path):
            data = bytes(obstore.get_range(self._client, path, start=start, length=length))
        if len(data) < length:
            raise self._error("read", path, f"the file ends {length - len(data)} bytes before")
        return data

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        return self._each(self.read, paths)

    def stat(self, path: str) -> FileInfo:
        check_relative(path, self.root_uri)
        with self._translated("stat", path):
            return _info(obstore.head(self._client, path), path)

    def list_from(self, start: str) -> list[FileInfo]:
        directory, least = split_start(start, self.root_uri)
        prefix = f"{directory}/" if directory else ""
        # Offsets are exclusive, and a string sorts after its own prefixes.
        offset = start[:-1] if len(least) > 1 else None
        infos: list[FileInfo] = []
        with self._translated("list", start):
            while True:
                crowded = self._collect(directory, offset, len(prefix), least, infos)
                if crowded is None:
                    break
                offset = f"{prefix}{crowded}/{_LAST_NAME}"
        infos.sort(key=lambda info: info.path)
        return infos

    def list_recursive(self, prefix: str) -> Iterator[FileInfo]:
        directory = check_directory(prefix, self.root_uri)
        with self._translated("list", prefix):
            pages = obstore.list(self._client, directory or None, chunk_size=_PAGE)
            for page in pages:
                for meta in page:
                    yield _info(meta, meta["path"])

    def list_tree(
        self, is_hidden: Callable[[str], bool], splits: Sequence[str] = ()
    ) -> Iterator[ListedDirectory]:
        if not self._seeks:
            splits = ()
        bounds = [None, *sorted(set(splits)), None]
        with ThreadPoolExecutor(min(_CONCURRENCY, len(bounds) - 1)) as pool:
            parts = list(pool.map(self._between, bounds[:-1], bounds[1:]))
        return by_directory(chain.from_iterable(parts), is_hidden)

    def create(self, path: str, data: bytes) -> None:
        check_relative(path, self.root_uri)
        with self._translated("create", path):
            obstore.put(self._committer, path, data, mode="create")

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        # A conditional upload is one request, so the bytes are buffered on disk.
        check_relative(path, self.root_uri)
        with TemporaryFile() as spool:
            for chunk in chunks:
                with self._translated("create", path):
                    spool.write(chunk)
            with self._translated("create", path):
                spool.seek(0)
                obstore.put(self._committer, path, spool, mode="create")

    def overwrite(self, path: str, data: bytes) -> None:
        # Safe to repeat, so the client with retries does it.
        check_relative(path, self.root_uri)
        with self._translated("overwrite", path):
            obstore.put(self._client, path, data, mode="overwrite", chunk_size=_PART_BYTES)

    def delete(self, path: str) -> None:
        check_relative(path, self.root_uri)
        with suppress(FileMissingError), self._translated("delete", path):
            obstore.delete(self._client, path)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_relative(path, self.root_uri)
        if not paths:
            return
        try:
            with self._translated("delete", paths[0]):
                obstore.delete(self._client, list(paths))
        except FileMissingError:  # some stores stop at the first absent file
            self._each(self.delete, paths)

    def _empty_range(self, path: str, start: int, length: int) -> bytes:
        size = self.size(path)
        if length == 0 and 0 <= start <= size:
            return b""
        raise self._error("read", path, f"bytes {start} to {start + length} of a file of {size}")

    def _collect(
        self, directory: str, offset: str | None, skip: int, least: str, infos: list[FileInfo]
    ) -> str | None:
        """Add the files after `offset` to `infos`; returns a sub-directory to skip, if any."""
        # Listings include sub-directories. One that fills a page (a log may hold thousands of
        # sidecars) is skipped, where a new listing after it is cheap.
        for page in obstore.list(self._client, directory or None, offset=offset, chunk_size=_PAGE):
            for meta in page:
                name = meta["path"][skip:]
                if "/" not in name and name >= least:
                    infos.append(_info(meta, meta["path"]))
            last, slash, _ = page[-1]["path"][skip:].partition("/") if page else ("", "", "")
            if self._seeks and slash and len(page) >= _PAGE:
                return last
        return None

    def _between(self, after: str | None, last: str | None) -> list[FileInfo]:
        """The files after `after`, up to `last` (included), in the order of their names."""
        infos: list[FileInfo] = []
        with self._translated("list", after or ""):
            for page in obstore.list(self._client, offset=after, chunk_size=_PAGE):
                infos += (_info(m, m["path"]) for m in page if last is None or m["path"] <= last)
                if last is not None and page and page[-1]["path"] > last:
                    break
        return infos

    def _each(self, action: Any, paths: Sequence[str]) -> list[Any]:
        if len(paths) < 2:
            return [action(path) for path in paths]
        with ThreadPoolExecutor(min(_CONCURRENCY, len(paths))) as pool:
            return list(pool.map(action, paths))

    @contextmanager
    def _translated(self, operation: str, path: str) -> Iterator[None]:
        """Translate obstore's errors, without their text and without a chain to them."""
        if not _runtime_is_ours():
            reason = "the process was forked after its first request; start it by spawning"
            raise self._error(operation, path, reason)
        try:
            yield
        except DeltaError:
            raise
        except Exception as error:
            raise translation(error, operation, self.address(path)) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # the class of Rust's panics
                raise
            raise self._error(operation, path, "the client failed inside") from None


def open_object_store(
    provider: str, bucket: str, prefix: str, root_uri: str, settings: ClientSettings
) -> ObjectStore:
    """The store for a prefix of a bucket of `provider`: "s3", "gs" or "azure"."""
    make = _CLIENTS[provider]
    shared = {
        "prefix": prefix or None,
        "config": settings.config,
        "client_options": settings.client,
    }
    try:
        client = make(bucket, **shared)
        committer = make(bucket, **shared, retry_config={"max_retries": 0})
    except Exception as error:
        raise translation(error, "open", root_uri) from None
    return ObjectStore(root_uri, client, committer=committer, seeks=provider in _SEEKING_PROVIDERS)


def translation(error: Exception, operation: str, address: str) -> StorageError:
    """Our error for one of obstore, by its class and by the harmless parts of its text."""
    text = str(error)
    if operation == "create" and isinstance(
        error, (foreign.AlreadyExistsError, foreign.PreconditionError, FileExistsError)
    ):
        # S3 answers 409 while another conditional PUT of that name is undecided.
        if "ConditionalRequestConflict" not in text:
            return FileAlreadyExistsError(path=address)
    elif isinstance(error, (foreign.NotFoundError, FileNotFoundError)):
        has_bucket = "NoSuchBucket" not in text and "ContainerNotFound" not in text
        if operation not in _WRITES and has_bucket:
            return FileMissingError(path=address)
    kind = _kind_of_failed_create(error, text) if operation == "create" else StorageError
    return kind(operation=operation, path=address, reason=_reason(error, text))


def _kind_of_failed_create(error: Exception, text: str) -> type[StorageError]:
    """The class of error for a failed conditional PUT, which is sent once."""
    is_spool_refusal = isinstance(error, OSError) and error.errno in _SPOOL_REFUSALS
    if is_spool_refusal or isinstance(error, _REFUSALS):
        return StorageRefusedError
    match = _STATUS.match(text)
    if match is None:
        return NothingWrittenError if _NOT_SENT.search(text) else StorageError
    status = int(match[1])
    is_too_many = status == 429
    if is_too_many or (status == 400 and any(code in text for code in _LATER)):
        return NothingWrittenError
    return StorageRefusedError if 400 <= status < 500 and status not in _UNDECIDED else StorageError


def _reason(error: Exception, text: str) -> str:
    sentence = next((REASONS[kind] for kind in type(error).__mro__ if kind in REASONS), None)
    details = [match[1] for pattern in _DETAILS if (match := pattern.search(text))]
    if match := _OS_ERROR.search(text):
        details.append(os.strerror(int(match[1] or match[2])))
    if sentence is None:
        sentence = f"the request failed with {type(error).__name__}"
    return f"{sentence} ({', '.join(dict.fromkeys(details))})" if details else sentence


def _info(meta: Any, path: str) -> FileInfo:
    return FileInfo(
        path=path, size=meta["size"], modified_ms=(meta["last_modified"] - _EPOCH) // _MILLISECOND
    )


def _runtime_is_ours() -> bool:
    """False in a forked child of a process that used obstore, which lacks the client's threads."""
    # A request there would wait for ever.
    global _runtime_pid
    if _runtime_pid is None:
        _runtime_pid = os.getpid()
    return _runtime_pid == os.getpid()
