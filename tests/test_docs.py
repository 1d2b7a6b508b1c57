"""The documentation: links lead somewhere, its commands run; methods of topics are described."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from importlib import import_module
from inspect import getdoc
from pkgutil import walk_packages

import pytest

import poskernel_core as pk
from poskernel_core import analyses
from poskernel_core.analyses.previous_token.views import largest_diagonals
from poskernel_core.analyses.views import finding_of
from poskernel_core.cli.main import PROGRAM, main
from poskernel_core.engine.engine import close_shared
from poskernel_core.engine.provenance import from_entry
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.shipped import Shipped
from tests.support import ROOT
from tools import screenshots

README = ROOT / "README.md"
DOORS = [ROOT / "llms.txt", ROOT / "AGENTS.md"]
"""Where programs, and those who write them, begin."""
FILES = [
    README,
    *DOORS,
    *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUN = [README, ROOT / "docs" / "tutorial.md", ROOT / "docs" / "how-to" / "notebooks.md"]
"""What a newcomer follows word for word."""
SHOTS = ROOT / "docs" / "screenshots"
TAKEN = {each.name for each in screenshots.shots(readme=False)}
"""The pictures that the site alone has."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors of a file's headings, as GitHub makes them."""
    seen = Counter()
    for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        yield f"{name}-{seen[name]}" if seen[name] else name
        seen[name] += 1


def lost_links(file):
    """The links of a file that lead to no file, or to no heading of it."""
    text = file.read_text("utf-8")
    plain = re.sub(r"`[^`]*`", "", BLOCK.sub("", text))
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", plain):
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if re.match(r"[a-z]+:", link) or (target.parent == SHOTS and target.stem in TAKEN):
            continue
        if not target.is_file() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            lost.append(link)
    return lost


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    assert [] == lost_links(file)


def test_every_picture_is_drawn_by_a_link():
    """The README's are here, taken by `make screenshots`; all others when the site is built."""
    there = {each.stem for each in (ROOT / "docs" / "screenshots").iterdir()}
    assert there == {each.name for each in screenshots.shots(readme=True)}
    texts = "".join(each.read_text("utf-8") for each in FILES)
    named = {*re.findall(r"\(\S*screenshots/([\w-]+)\.png\)", texts)}
    assert named - there == TAKEN


@pytest.mark.parametrize("file", DOORS, ids=lambda file: file.name)
def test_paths_and_commands_exist(file):
    """What stands between code marks: a path, a target of make, or a command and its question."""
    marked = re.findall(r"`([^`]+)`", file.read_text("utf-8"))
    words = [shlex.split(each.split("  ")[0]) for each in marked]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    known = {**PROGRAM.commands, **analyses.ANALYSES}
    paths = {each for line in words for each in line if re.search(r"\w/|\.(py|md)$", each)}
    made = {each for each in paths if each.startswith((".venv/", "build/"))}

    assert len(paths) > 1
    assert [] == [each for each in sorted(paths - made) if not (ROOT / each).exists()]
    for first, *rest in words:
        assert first != "make" or rest[0] in targets, rest
        if first == "poskernel" or rest[:2] == ["-m", "poskernel_core"]:
            named = [each for each in rest if each.isalpha() and each.islower() and each != "m"]
            assert named
            assert set(named) <= known.keys(), named
        assert first[:3] != "pk." or hasattr(pk, first[3:]), first


def test_commands_of_the_tutorial_work_in_a_clone():
    """The names that it gives them there are programs that `make app` makes."""
    (line,) = re.findall(r"^alias (.*)$", (ROOT / "docs" / "tutorial.md").read_text("utf-8"), re.M)
    for name, command in (each.split("=", 1) for each in shlex.split(line)):
        python, *words = command.split()
        done = subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True)
        assert (".venv/bin/python", 0) == (python, done.returncode), name


@pytest.mark.slow
@pytest.mark.parametrize("file", RUN, ids=lambda file: file.stem)
def test_what_is_told_runs(file, tmp_path, monkeypatch, capfd, near_worker, unchecked):
    """Every command that ends by itself, and all Python, in an empty folder, with no network.

    What is shown as their output is in it.
    """
    blocks = BLOCK.findall(file.read_text("utf-8"))
    lines = "".join(words for kind, words in blocks if not kind).splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line[:10] == "poskernel "]
    python = "".join(words for kind, words in blocks if kind == "python")
    assert python
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for each in commands:
        assert each[0] == "serve" or 0 == main(each), each
    exec(compile(python, file, "exec"), {"__name__": "__main__"})
    close_shared()
    told = "".join(capfd.readouterr())
    for kind, words in blocks:
        assert kind != "text" or set(words.splitlines()) <= set(told.splitlines())


def test_circuits_of_the_tutorial_open_at_once(tmp_path, monkeypatch, capfd):
    """Its commands are answered from what comes with the models, without weights."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
    _, rest = (ROOT / "docs" / "tutorial.md").read_text("utf-8").split("From heads to a circuit\n")
    blocks = BLOCK.findall(rest.partition("\n## ")[0])
    commands = [words for kind, words in blocks if not kind]
    assert {"demo-gpt2", "smollm2-135m-instruct-q4"} <= {*" ".join(commands).split()}
    for each in "".join(commands).splitlines():
        assert 0 == main(shlex.split(each)[1:]), each
    close_shared()
    told = capfd.readouterr().out.splitlines()
    assert {line for kind, words in blocks if kind for line in words.splitlines()} <= {*told}


def test_every_method_of_a_topic_is_described():
    """Where it stands, or where the hook that it fills in is declared."""
    names = [each.name for each in walk_packages(analyses.__path__, f"{analyses.__name__}.")]
    classes = {
        each
        for module in map(import_module, names)
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    }
    assert len(classes) > len(analyses.ANALYSES)
    bare = [
        f"{each.__qualname__}.{name}"
        for each in classes
        for name, method in vars(each).items()
        if name[0] != "_" and getattr(method, "__name__", "") == name
        if not getdoc(getattr(each, name))
    ]
    assert [] == bare


@pytest.mark.parametrize(("row", "question", "said"), [
    ("Map", "etc", finding_of), ("Context", "contextual-heads", finding_of),
    ("Previous token", "previous-token", largest_diagonals),
])  # fmt: skip
def test_the_counts_of_the_table_of_pages_are_those_of_the_pages(row, question, said):
    """Of SmolLM2, from its shipped results: those that the pages ask for first."""
    text = (ROOT / "docs/concepts/pages.md").read_text("utf-8")
    (told,) = re.findall(rf"^\| {row} \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    counts = re.findall(r"\b\d+\b", told)
    shipped = Shipped([RESULTS / "smollm2-135m-instruct-q4"])
    every = (from_entry(shipped.get(key)) for key, _ in shipped.headers())
    answers = [each for each in every if each is not None and each.analysis == question]
    parts = [each.select(query=400) if "query" in each.coordinates else each for each in answers]
    assert counts
    assert any({*counts} <= {*re.findall(r"\b\d+\b", said(part))} for part in parts), told
