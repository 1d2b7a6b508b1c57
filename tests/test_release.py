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


def test_what_is_ready_is_released(checkout):
    release.refuse_unready()


@pytest.mark.parametrize(
    ("file", "text", "act", "words"),
    [
        # a file, what is written into it, what is done then, words of the sentence
        ("more.py", "", "nothing", "without changes, found 1: commit"),
        ("CHANGELOG.md", CHANGELOG.replace(" - 2026-11-05", ""), "commit", r"\[3\.5\.7\] in"),
        ("poskernel_core/__init__.py", VERSION.replace("3.5", "3.6"), "commit", r"\[3\.6\.7\] in"),
        ("CITATION.cff", "license: MIT\nversion: 3.5.6\n", "commit", r"3\.5\.7 in CITATION\.cff"),
        ("more.py", "", "commit", "run 'make test' first"),
        ("build/tested", "", "nothing", "run 'make test' first"),
    ],
)
def test_what_is_not_ready_is_refused(checkout, tmp_path, file, text, act, words):
    (tmp_path / file).write_text(text)
    if act == "commit":
        checkout("add", ".")
        checkout("commit", "--quiet", "--message", "More")
    with pytest.raises(SystemExit, match=words):
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
