"""Commits stay light: large binary files need a reason, a line ``Binary: why`` in the message."""

import os
import re
import subprocess

import pytest

from tests.support import ROOT

RULE = "tests/test_commits.py"
"""Commits after the one that brought this file are held to it."""
MOST = 1_000_000
EXACT = "--find-renames=100%"
"""What has only moved is not new."""

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone")


def git(folder, *words):
    command = ["git", "-c", "core.quotePath=false", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def heavy(folder, since):
    """The commits since another one whose new binary files are too large, and how large they are.

    Only files that are still there are looked at: a clone need not have others.
    """
    there = {}
    for line in git(folder, "ls-tree", "-r", "-l", "HEAD").splitlines():
        about, path = line.split("\t")
        there[path] = about.split()[2:]
    kinds = (line.split("\t") for line in git(folder, "ls-files", "--eol").splitlines())
    binary = {path for kind, path in kinds if kind.startswith("i/-text")}
    log = f"log --ancestry-path --no-merges --raw --no-abbrev --diff-filter=AM {EXACT}".split()
    found = {}
    for text in git(folder, *log, "--format=%x00%H%n%B", f"{since}..HEAD").split("\0")[1:]:
        commit, _, told = text.partition("\n")
        new = re.findall(r"^:\d+ \d+ \w+ (\w+) \w\t(.+)$", told, re.MULTILINE)
        sizes = [int(there[path][1]) for blob, path in new
                 if path in binary and there.get(path, [""])[0] == blob]  # fmt: skip
        if sum(sizes) > MOST and not re.search(r"^Binary: \S", told, re.MULTILINE):
            found[commit[:10]] = sum(sizes)
    return found


def test_what_weighs_has_a_reason():
    added = git(ROOT, "log", "--no-renames", "--diff-filter=A", "--format=%H", "--", RULE).split()
    assert {} == (heavy(ROOT, added[-1]) if added else {}), (
        "Binary files of more than a megabyte: take them out, or say why in the message, in a "
        "line that begins with 'Binary: '."
    )


@pytest.fixture
def clone(tmp_path):
    """A repository, and what commits to it files of so many bytes; each is the next one."""
    git(tmp_path, "init", "-q")
    names = iter("abcdef")

    def commit(message, *sizes, made=os.urandom):
        for size in sizes:
            (tmp_path / next(names)).write_bytes(made(size))
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        git(tmp_path, "add", "-A")
        git(tmp_path, *who, "commit", "-q", "--allow-empty", "-m", message)
        return git(tmp_path, "rev-parse", "HEAD").strip()

    return tmp_path, commit


def test_what_is_heavy(clone):
    folder, commit = clone
    first = commit("First", 3 * MOST)
    commit("Light", MOST - 10)
    commit("Text", 2 * MOST, made=lambda size: b"words\n" * (size // 6))
    commit("Results\n\nBinary: computed anew", 2 * MOST)
    assert {} == heavy(folder, first)
    (folder / "a").rename(folder / "moved")
    commit("Moved")
    assert {} == heavy(folder, first)
    last = commit("Pictures", MOST // 2, MOST // 2 + 10)
    assert {last[:10]: MOST + 10} == heavy(folder, first)
