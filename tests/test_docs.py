"""The documentation: it tells of what is declared, its links lead somewhere, its commands run."""

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from importlib import import_module

import pytest

from pages.shared.measures import MEASURES
from tests.support.server import ROOT, environment
from tools.recorded import page_names
from tools.screenshots import SCHEMES, shots

README = ROOT / "README.md"
FILES = [
    README,
    *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUN = [README, ROOT / "docs" / "tutorial.md", ROOT / "docs" / "how-to" / "notebooks.md"]
"""What a newcomer follows word for word."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(*path):
    """The text of a file of the documentation."""
    return ROOT.joinpath(*path).read_text("utf-8")


def rows(text):
    """The cells of all tables, without their heads."""
    lines = re.findall(r"^\|(.*)\|$(?!\n\|-)", text, re.MULTILINE)
    return [[each.strip() for each in line.split("|")] for line in lines if "---" not in line]


def pages():
    """Section, title and address of every page, in the order of the navigation."""
    places = {name: import_module(f"pages.{name}.page").PLACE for name in page_names()}
    return [
        (place.section, place.title, f"/{name if place.order else ''}")
        for name, place in sorted(places.items(), key=lambda each: each[1].order)
    ]


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").splitlines()) <= 150


def test_every_page_is_told_of():
    table = [row for row in rows(README.read_text("utf-8")) if row[2:3] and row[2][:2] == "`/"]
    told, section = [], ""
    for level, name in re.findall(
        r"^(##|###) (.*)$", text_of("docs", "concepts", "pages.md"), re.MULTILINE
    ):
        section = name if level == "##" else section
        told += [(section, name)] if level == "###" else []

    assert [(section, title, f"`{address}`") for section, title, address in pages()] == [
        tuple(row[:3]) for row in table
    ]
    assert [page[:2] for page in pages()] == told


def test_every_measure_is_told_of():
    table = rows(text_of("docs", "concepts", "measures.md"))

    assert [[title, f"`{one.question.name}`"] for title, one in MEASURES.items()] == [
        row[:2] for row in table if len(row) == 3
    ]


def test_pictures_are_those_of_pages():
    declared = {f"{shot.name}-{scheme}.png" for shot in shots() for scheme in SCHEMES}

    assert declared == {file.name for file in (ROOT / "docs" / "screenshots").iterdir()}


def test_every_setting_is_told_of():
    table = "".join(row[0] for row in rows(text_of("docs", "reference", "environment.md")))
    folders = ("poskernel_core", "pages", "serving")
    code = "".join(
        file.read_text("utf-8")
        for each in folders
        for file in (ROOT / each).rglob("*.py")
        if file.name != "renamed.py"  # what nothing reads any more
    )
    files = [ROOT / "compose.yaml", *(ROOT / "deploy").iterdir()]
    read = set(re.findall(r"\bPOSKERNEL_[A-Z_]+[A-Z]\b", code)).union(
        *(re.findall(r"\{\$?([A-Z][A-Z0-9_]+)", file.read_text("utf-8")) for file in files)
    )

    assert {"POSKERNEL_CACHE", "POSKERNEL_HOST", "POSKERNEL_SITE"} <= read
    assert [] == sorted(name for name in read if f"`{name}`" not in table)


def anchors(text):
    """The anchors of a file's headings, as GitHub makes them."""
    seen = Counter()
    for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        yield f"{name}-{seen[name]}" if seen[name] else name
        seen[name] += 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    text = file.read_text("utf-8")
    plain = re.sub(r"`[^`]*`", "", BLOCK.sub("", text))
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", plain):
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if re.match(r"[a-z]+:", link):
            continue
        if not target.is_file() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            lost.append(link)

    assert [] == lost


@pytest.mark.slow
@pytest.mark.parametrize("file", RUN, ids=lambda file: file.stem)
def test_what_is_told_runs(file, tmp_path):
    """Every command that ends by itself, and all Python, in an empty folder, with no network.

    What installs and what serves is tried where the wheels are (`tests/test_release.py`).
    """
    blocks = BLOCK.findall(file.read_text("utf-8"))
    lines = "".join(words for kind, words in blocks if not kind).splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line[:10] == "poskernel "]
    python = "".join(words for kind, words in blocks if kind == "python")
    ours = environment(tmp_path / "cache", shipped=True) | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    folder = tmp_path / "empty"
    folder.mkdir()
    for arguments in [
        *(["-m", "poskernel_core", *each] for each in commands if each[0] != "serve"),
        ["-c", python],
    ]:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=ours, capture_output=True, text=True
        )
        assert (0, arguments) == (done.returncode, arguments), done.stderr
    assert python
