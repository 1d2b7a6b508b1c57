"""What `make release` refuses, and the table that it prints."""

import hashlib
import subprocess

import pytest

from tools import release

VERSION = '__version__ = "3.5.7"\n'
CHANGELOG = "# Changelog\n\n## [3.5.7] - 2026-11-05\n\nNew.\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A committed checkout that may be released, and what runs git in it."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "TESTED", tmp_path / "build" / "tested")
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    monkeypatch.setitem(release.call.__kwdefaults__, "cwd", tmp_path)

    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.check_output(["git", *names, *words], cwd=tmp_path, text=True)

    for folder in ("poskernel_core", "build", "dist"):
        (tmp_path / folder).mkdir()
    (tmp_path / "poskernel_core" / "__init__.py").write_text(VERSION)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "CITATION.cff").write_text("license: MIT\nversion: 3.5.7\n")
    (tmp_path / ".gitignore").write_text("build/\ndist/\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "All")
    (tmp_path / "build" / "tested").write_text(git("rev-parse", "HEAD"))
    return git


def change(root):
    (root / "more.py").write_text("")


def undated(root):
    (root / "CHANGELOG.md").write_text(CHANGELOG.replace(" - 2026-11-05", ""))


def another_version(root):
    (root / "poskernel_core" / "__init__.py").write_text(VERSION.replace("3.5", "3.6"))


def test_what_is_ready_is_released(checkout):
    release.refuse_unready()


def test_changes_are_refused(checkout, tmp_path):
    change(tmp_path)
    with pytest.raises(SystemExit, match="without changes, found 1: commit"):
        release.refuse_unready()


@pytest.mark.parametrize("act", [undated, another_version])
def test_a_version_without_its_dated_section_is_refused(checkout, tmp_path, act):
    act(tmp_path)
    checkout("commit", "--all", "--quiet", "--message", "More")
    with pytest.raises(SystemExit, match=r"dated section \[3\.[56]\.7\] in CHANGELOG"):
        release.refuse_unready()


def test_another_version_to_cite_is_refused(checkout, tmp_path):
    (tmp_path / "CITATION.cff").write_text("license: MIT\nversion: 3.5.6\n")
    checkout("commit", "--all", "--quiet", "--message", "More")
    with pytest.raises(SystemExit, match=r"version 3\.5\.7 in CITATION\.cff"):
        release.refuse_unready()


def test_another_commit_than_the_tested_one_is_refused(checkout, tmp_path):
    change(tmp_path)
    checkout("add", ".")
    checkout("commit", "--quiet", "--message", "More")
    with pytest.raises(SystemExit, match="run 'make test' first"):
        release.refuse_unready()


def test_untested_is_refused(checkout, tmp_path):
    (tmp_path / "build" / "tested").unlink()
    with pytest.raises(SystemExit, match="run 'make test' first"):
        release.refuse_unready()


def test_the_table(checkout, tmp_path, capsys):
    """Files with size and checksum; images beside them, but not in the list of files."""
    (tmp_path / "dist" / "poskernel-3.5.7.tar.gz").write_bytes(b"abc")
    release.tell({"image poskernel": (2_000_000, "77")})
    said = capsys.readouterr().out

    digest = hashlib.sha256(b"abc").hexdigest()
    assert f"0.0 MB  {digest}" in said
    assert "2.0 MB  77" in said
    sums = (tmp_path / "dist" / "SHA256SUMS").read_text()
    assert f"{digest}  poskernel-3.5.7.tar.gz\n" == sums
