"""Real refusals of the operating system: too large a file, no space, no permission, read-only."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """This process, but not the JVM, writes no file of more than `size` bytes: EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def closed_directory(path: Path) -> Iterator[None]:
    """No name may come or go in a directory: EACCES, or EPERM for root."""
    if os.geteuid() != 0:
        path.chmod(0o555)
        try:
            yield
        finally:
            path.chmod(0o755)
        return
    _run("chattr", "+i", str(path))
    try:
        yield
    finally:
        _run("chattr", "-i", str(path))


class SmallDisk:
    """A file system of its own at `path`, which can be filled and made read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no room: ENOSPC."""
        with (self.path / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        """Make room again."""
        (self.path / "filler").unlink()

    def make_read_only(self) -> None:
        """From here on: EROFS."""
        _run("mount", "-o", "remount,ro", str(self.path))


@contextmanager
def small_disk(path: Path, *, size: str = "1m") -> Iterator[SmallDisk]:
    """A disk at `path`; skips where mounting is not permitted."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"not here: {error}")
    if done.returncode:
        pytest.skip(f"{command[0]} is not permitted: {done.stderr.strip()}")
