"""A small S3: enough of its HTTP interface for the real client to talk to, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_ERROR = "<Error><Code>{code}</Code><Message>{message}</Message></Error>"
_LISTING = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    "<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{contents}</ListBucketResult>"
)
_OBJECT = (
    "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>x</ETag>"
    "<LastModified>2024-05-06T12:53:20.000Z</LastModified></Contents>"
)


class S3Server(ThreadingHTTPServer):
    """One bucket.  `requests` holds (method, key); `answers` are sent once each, before any work.

    An answer is (status, body), or None to close the connection after the work was done.
    `refusals` are answers by method to every request whose key ends in `refused_suffix`.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.answers: list[tuple[int, str] | None] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        self.refused_suffix = ""
        self.page = 1000

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is not news."""


@contextmanager
def running_s3() -> Iterator[S3Server]:
    with S3Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: S3Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        key = unquote(url.path).lstrip("/").partition("/")[2]
        with self.server.lock:
            self.server.requests.append((self.command, key))
            planned = self.server.answers.pop(0) if self.server.answers else (0, "")
            if self.command in self.server.refusals and key.endswith(self.server.refused_suffix):
                planned = self.server.refusals[self.command]
            if planned is not None and planned[0]:
                self.answer(planned[0], planned[1].encode())
                return
            status, data, headers = self.work(key, query, body)
        if planned is None:
            self.close_connection = True
            return
        self.answer(status, data, headers)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def work(
        self, key: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        objects = self.server.objects
        if self.command == "POST" and "delete" in query:
            keys = [part.partition("</Key>")[0] for part in body.decode().split("<Key>")[1:]]
            for deleted in keys:
                objects.pop(unescape(deleted, {"&quot;": '"', "&apos;": "'"}), None)
            done = "".join(f"<Deleted><Key>{deleted}</Key></Deleted>" for deleted in keys)
            return 200, f"<DeleteResult>{done}</DeleteResult>".encode(), {}
        if self.command == "GET" and "list-type" in query:
            return 200, self.listing(query).encode(), {}
        if self.command == "PUT":
            if self.headers.get("if-none-match") == "*" and key in objects:
                return 412, _error("PreconditionFailed"), {}
            objects[key] = body
            return 200, b"", {"etag": f'"{md5(body).hexdigest()}"'}
        if self.command == "DELETE":
            objects.pop(key, None)
            return 204, b"", {}
        if key not in objects:
            return 404, _error("NoSuchKey"), {}
        return self.contents(objects[key])

    def contents(self, data: bytes) -> tuple[int, bytes, dict[str, str]]:
        headers = {"etag": '"x"', "last-modified": formatdate(1_715_000_000, usegmt=True)}
        wanted = self.headers.get("range")
        if self.command == "HEAD" or wanted is None:
            return 200, data, headers
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
        if start >= len(data):
            return 416, _error("InvalidRange"), {}
        headers["content-range"] = f"bytes {start}-{end}/{len(data)}"
        return 206, data[start : end + 1], headers

    def listing(self, query: dict[str, list[str]]) -> str:
        prefix = query.get("prefix", [""])[0]
        after = max(query.get("start-after", [""])[0], query.get("continuation-token", [""])[0])
        keys = sorted(k for k in self.server.objects if k.startswith(prefix) and k > after)
        page = keys[: self.server.page]
        more = len(keys) > len(page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        contents = "".join(
            _OBJECT.format(key=escape(key), size=len(self.server.objects[key])) for key in page
        )
        return _LISTING.format(more=str(more).lower(), token=token, contents=contents)


def _error(code: str) -> bytes:
    return _ERROR.format(code=code, message="as asked").encode()
