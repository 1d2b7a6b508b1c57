"""Files that appear whole or not at all: what stands at the target stays what it is."""

import os
import socket
import stat

import pytest

from poskernel_core.common.atomic_write import (
    atomic_write,
    check_folder,
    check_ours,
    check_target,
    make_folder,
)
from poskernel_core.common.errors import BadRequest


def write(path):
    path.write_text("new")


@pytest.mark.parametrize("kind", ["pipe", "socket", "link to a pipe"])
def test_what_is_no_file_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    target = tmp_path / "target"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(target.name)
    elif kind == "pipe":
        os.mkfifo(target)
    else:
        os.mkfifo(tmp_path / "pipe")
        target.symlink_to("pipe")
    before = target.lstat()

    for refuse in (check_target, lambda path: atomic_write(path, write)):
        with pytest.raises(BadRequest, match=r"target': it is a device, a pipe"):
            refuse(target)

    assert (before.st_ino, before.st_mode) == (target.lstat().st_ino, target.lstat().st_mode)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_has_its_target_written(tmp_path, there):
    folder, link = tmp_path / "folder", tmp_path / "link.html"
    folder.mkdir()
    if there:
        (folder / "page.html").write_text("old")
    link.symlink_to(folder / "page.html")

    atomic_write(link, write)

    assert stat.S_ISLNK(link.lstat().st_mode)
    assert "new" == (folder / "page.html").read_text()
    assert ["page.html"] == os.listdir(folder)
    assert ["folder", "link.html"] == sorted(os.listdir(tmp_path))


def test_two_who_write_one_file(tmp_path):
    target = tmp_path / "results.zip"

    def slow(path):
        path.write_text("one half")
        atomic_write(target, write)
        with path.open("a") as file:
            file.write(", and the other")

    atomic_write(target, slow)

    assert "one half, and the other" == target.read_text()
    assert ["results.zip"] == os.listdir(tmp_path)


def test_a_folder_of_others(tmp_path):
    (tmp_path / "site").mkdir()
    for place in ("site", "none"):
        check_ours(tmp_path / place, "index.html", b"by us")
    for there in ("other.html", "index.html"):
        (tmp_path / "site" / there).write_text("by them")
        with pytest.raises(BadRequest, match=r"site' holds files that were not exported like this"):
            check_ours(tmp_path / "site", "index.html", b"by us")
    (tmp_path / "site" / "index.html").write_text("made by us")
    check_ours(tmp_path / "site", "index.html", b"by us")


def test_where_no_file_can_be(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "none" / "file")

    for place in (tmp_path, tmp_path / "none" / "file", link):
        with pytest.raises(BadRequest):
            atomic_write(place, write)
    assert link.is_symlink()
    assert ["link"] == os.listdir(tmp_path)


def test_a_folder_is_checked_before_it_is_made(tmp_path, monkeypatch):
    check_folder(tmp_path / "a" / "b")
    assert [] == os.listdir(tmp_path)
    make_folder(tmp_path / "a" / "b")
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("x")

    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        for refuse in (check_folder, make_folder):
            with pytest.raises(BadRequest, match=r"^Cannot make the folder '.*file"):
                refuse(place)
    monkeypatch.setattr(os, "access", lambda *_: False)
    check_folder(tmp_path)
    with pytest.raises(BadRequest, match="Permission denied"):
        check_folder(tmp_path / "a" / "c")
