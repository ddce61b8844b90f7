"""A server of Spark Connect, and of JDBC where wanted, whose clients have all of Delta.

    pyspark-delta server --port 15002 --thrift-port 10000

Clients need nothing of ours: any client of Spark Connect, beeline, and JDBC drivers of Hive.  The
server listens on this machine only and lets in who has the token, unless it is configured
otherwise.  JDBC has no token: whoever reaches that port is let in.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pyspark_delta.spark.jvm.servers import is_alive, start_connect, start_thrift, stop_connect
from pyspark_delta.spark.session.enable import enable

_LOCAL = "127.0.0.1"
_LOOPBACK = (_LOCAL, "::1", "localhost")
_TOKEN = "spark.connect.authenticate.token"
# Spark's own name; in the environment a token is in no list of processes.
_TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_PLUGINS: Mapping[str, str] = {
    "spark.connect.extensions.relation.classes": "pyspark_delta.ConnectRelations",
    "spark.connect.extensions.command.classes": "pyspark_delta.ConnectCommands",
}
_VALID_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
# As Spark itself decides what its pages and logs may not show.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
_COMMANDS = ("server",)


def command(arguments: Sequence[str] | None = None) -> int:
    """The command `pyspark-delta`; the exit status."""
    parser = argparse.ArgumentParser(
        prog="pyspark-delta", description="Delta Lake on PySpark, with no JAR."
    )
    parser.add_argument("command", choices=_COMMANDS, help="serve tables to other programs")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="see pyspark-delta server -h")
    return main(parser.parse_args(arguments).arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status is 0 then."""
    given = _parsed(arguments)
    stop = threading.Event()
    _stop_by_signal(stop)
    token = given.token or os.environ.get(_TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    try:
        spark = _session(given, token)
    except Exception as error:
        return _failed(error)
    _stop_by_signal(stop)  # Spark has put a handler of its own in the place of ours
    try:
        return _serve(spark, given, token, stop)
    except Exception as error:
        return _failed(error)
    finally:
        spark.stop()


def _serve(
    spark: SparkSession, given: argparse.Namespace, token: str, stop: threading.Event
) -> int:
    port = start_connect(spark)
    if given.thrift_port is not None:
        thrift_port = start_thrift(spark)
        print(f"jdbc:hive2://{_url_host(given.host)}:{thrift_port}/", flush=True)
    # The last line: whoever waits for it finds everything ready.
    # Characters of a token may be separators of the address.
    written = quote(token, safe="")
    print(f"sc://{_connect_host(given.host)}:{port}/;token={written}", flush=True)
    while not stop.wait(1.0):
        if not is_alive(spark):
            print("The JVM of the server has ended.", file=sys.stderr)
            return 1
    stop_connect(spark)
    return 0


def _failed(error: Exception) -> int:
    """Print why, in one sentence of Spark's or ours; the exit status."""
    behind = getattr(error, "java_exception", None)
    text = str(error if behind is None else behind.toString()).strip() or type(error).__name__
    print(f"pyspark-delta server: {text.splitlines()[0]}", file=sys.stderr)
    return 1


def _stop_by_signal(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyspark-delta server",
        description="Serve Delta tables to clients of Spark Connect and JDBC.",
    )
    parser.add_argument("--port", type=_port, default=15002, help="of Connect; 0 takes a free one")
    parser.add_argument(
        "--thrift-port", type=_port, help="of JDBC; 0 takes a free one, without it there is none"
    )
    parser.add_argument("--host", default=_LOCAL, help="the address to listen on")
    parser.add_argument(
        "--token",
        type=_token,
        help=f"that clients send; without it {_TOKEN_VARIABLE} of the environment, or a new one",
    )
    parser.add_argument("--master", help="of Spark, as in local[4]")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given more than once",
    )
    return parser.parse_args(arguments)


def _session(given: argparse.Namespace, token: str) -> SparkSession:
    settings = {
        "spark.app.name": "pyspark-delta server",
        "spark.connect.grpc.binding.address": given.host,
        "spark.connect.grpc.binding.port": str(given.port),
        _TOKEN: token,
        "spark.hadoop.hive.server2.thrift.bind.host": given.host,
        "spark.hadoop.hive.server2.thrift.port": str(given.thrift_port or 0),
        **_PLUGINS,
    }
    if given.master is not None:
        settings["spark.master"] = given.master
        if given.master.startswith("local") and given.host in _LOOPBACK:
            # Spark's own pages and ports stay on this machine too.
            os.environ.setdefault("SPARK_LOCAL_IP", _LOCAL)
        if given.master.startswith("local"):
            # Functions of clients run in the interpreter that has the packages of this one.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in given.conf:
        ours = settings.get(key)
        # Extensions of others stay beside ours.
        settings[key] = f"{value},{ours}" if key in _PLUGINS else value
    _start_jvm(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        session = enable(builder.getOrCreate())
    for each in caught:
        print(f"pyspark-delta server: {each.message}", file=sys.stderr)
    return session


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM without the settings that are secrets: everybody can list its arguments."""
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if not _SECRET.search(key):
            conf.set(key, value)
    SparkContext._ensure_initialized(conf=conf)


def _connect_host(host: str) -> str:
    """The host for clients: PySpark sends a token without TLS to the name localhost alone."""
    return "localhost" if host in _LOOPBACK else _url_host(host)


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: use a number up to 65535")
    return port


def _token(text: str) -> str:
    if not _VALID_TOKEN.fullmatch(text):
        raise argparse.ArgumentTypeError(
            "a token has letters, digits and . _ ~ + / = - only, and is not empty"
        )
    return text


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: write KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
