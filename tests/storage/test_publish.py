from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pyspark_delta.kernel.storage.local import Mover, publish, rename_without_replacing


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "tä ble 100%"
    place.mkdir()
    (place / "staged").write_bytes(b"new")
    return place


def no_links(code: int) -> Mover:
    """link(2) as a file system that lacks it answers."""

    def link(source: str, target: str) -> None:
        raise OSError(code, os.strerror(code), source, None, target)

    return link


def test_a_file_gets_its_name(directory: Path) -> None:
    publish(str(directory / "staged"), str(directory / "final"))
    assert (directory / "final").read_bytes() == b"new"


def test_a_name_that_is_taken_is_left_alone(directory: Path) -> None:
    (directory / "final").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        publish(str(directory / "staged"), str(directory / "final"))
    assert (directory / "final").read_bytes() == b"old"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS])
def test_without_hard_links_a_rename_that_never_replaces_is_used(
    directory: Path, code: int
) -> None:
    staged, final = str(directory / "staged"), str(directory / "final")
    publish(staged, final, link=no_links(code))
    assert (directory / "final").read_bytes() == b"new"
    assert not (directory / "staged").exists()
    (directory / "staged").write_bytes(b"late")
    with pytest.raises(FileExistsError):
        publish(staged, final, link=no_links(code))
    assert (directory / "final").read_bytes() == b"new"


def test_without_both_nothing_is_published(directory: Path) -> None:
    with pytest.raises(OSError, match="neither link nor rename") as caught:
        publish(
            str(directory / "staged"),
            str(directory / "final"),
            link=no_links(errno.EPERM),
            rename=no_links(errno.EINVAL),
        )
    assert caught.value.errno == errno.EINVAL
    assert os.listdir(directory) == ["staged"]


def test_other_errors_are_not_taken_for_missing_links(directory: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught:
        publish(str(directory / "staged"), str(directory / "final"), link=no_links(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC


def test_the_rename_reports_what_the_kernel_says(directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rename_without_replacing(str(directory / "absent"), str(directory / "final"))
