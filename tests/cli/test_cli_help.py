"""The help of the command line, analysis by analysis, and what it reads of the order of options."""

import re
import shlex

import click
import pytest

from poskernel_core.analyses import ANALYSES
from poskernel_core.api import build_request
from poskernel_core.cli import main as cli
from poskernel_core.cli import show
from poskernel_core.common.errors import BadRequest
from tests.support.server import ROOT

MODEL = "demo-gpt2"
OWN, RUN = "Options of this analysis", "The run"


@pytest.fixture
def helped(capsys, monkeypatch):
    """Ask for help; returns what is printed, every entry on a line or two of its own."""
    monkeypatch.setattr(click.formatting, "FORCED_WIDTH", 2000)

    def one(*arguments):
        assert 0 == cli.main([*arguments, "--help"])
        out, err = capsys.readouterr()
        assert "" == err
        return out

    return one


def entries(text, heading):
    """The entries of one section: name of the option -> metavar and text."""
    section = re.search(rf"^{heading}:\n((?:  .*\n)+)", text, re.MULTILINE)
    found = re.findall(
        r"^  (--[\w-]+) ?(\S*)\s+(\S.*)$", section[1] if section else "", re.MULTILINE
    )
    return {name: (metavar, words) for name, metavar, words in found}


@pytest.mark.parametrize("name", ANALYSES)
def test_the_help_of_each_analysis(helped, name):
    text = helped("show", name)
    own = entries(text, OWN)
    fields = ANALYSES[name].params.model_json_schema()["properties"]

    assert f"  {ANALYSES[name].title}\n\n" in text
    assert [f"--{field.replace('_', '-')}" for field in fields] == list(own)
    for each, (metavar, words) in zip(fields.values(), own.values(), strict=True):
        assert words.startswith(each["description"])
        assert "enum" not in each or f"[{'|'.join(each['enum'])}]" == metavar
    for option in ("--json", "--npz", "--html"):
        assert 1 == len(re.findall(rf"^  {option}\b", text, re.MULTILINE))
    for option in ("head", "query"):
        offered = re.search(rf"^  --{option}\b", text, re.MULTILINE)
        try:
            build_request(name, MODEL, **{option: {"head": "L0H3", "query": 9}[option]})
            refused = False
        except BadRequest as error:
            refused = f"has no {option} to choose" in str(error)
        assert bool(offered) != refused
        axes = {axis for value in ANALYSES[name].values for axis in value.axes}
        assert bool(offered) == (option in {*fields, *axes})
    assert {"--windows", "--corpus", "--device", "--seed"} <= set(entries(text, RUN))


def test_entries_by_hand(helped):
    etc = entries(helped("show", "etc"), OWN)

    assert ("N", "first key positions left out  [default: 4; 0<=x<=32]") == etc["--skip"]
    assert "[default: 0.5; 0<=x<=1]" in etc["--local-share"][1]
    assert "0<x<=10]" in entries(helped("show", "helix"), OWN)["--far"][1]
    assert "[required]" in entries(helped("show", "stages"), OWN)["--head"][1]
    assert ("N", "windows of text; up to 500 if not given  [1<=x<=1000000000]") == (
        entries(helped("precompute", MODEL), RUN)["--windows"]
    )


def test_lists(helped):
    lines = helped("show").splitlines()
    for name, analysis in ANALYSES.items():
        assert 1 == sum(line.split(None, 1) == [name, analysis.title] for line in lines)
    assert helped("show", "--windows", "3") == helped("show")
    for name in ("models", "precompute", "merge", "show", "reproduce", "export", "import"):
        assert 1 == len(re.findall(rf"^  {name}  +[A-Z].*\.$", helped(), re.MULTILINE))
        assert f"Usage: poskernel {name}" in helped(name)


ORDERS = (
    ("etc", MODEL, "--windows", "20", "--skip", "4", "--json", "--head", "L0H3"),
    ("--windows", "20", "--json", "etc", "--skip", "4", "--head", "L0H3", MODEL),
    ("--json", "--skip=4", "--head", "L0H3", "etc", MODEL, "--windows=20"),
    ("etc", "--json", "--skip", "9", "--skip", "4", "--windows", "20", "--head=L0H3", "--", MODEL),
)


@pytest.mark.parametrize("given", ORDERS)
def test_order_is_free(monkeypatch, capsys, given):
    asked = []

    def stop(*names, **options):
        asked.append((names, options))
        raise BadRequest("Enough.")

    monkeypatch.setattr(show, "build_request", stop)

    assert 2 == cli.main(["show", *given])
    assert "Enough.\n" == capsys.readouterr().err
    ((names, options),) = asked
    assert ("etc", MODEL) == names
    assert ("L0H3", None, 20) == tuple(options[name] for name in ("head", "query", "windows"))
    assert 4 == options["params"]["skip"]


WRONG = {
    # what is typed, what the sentence names
    "no analysis": (("show",), ["analysis", "one of etc, kernel"]),
    "no model": (("show", "etc"), ["MODEL"]),
    "no file": (("export", MODEL), ["FILE", "--gallery"]),
    "a run's option": (("export", MODEL, "a.zip", "--corpus-item", "x"), ["--corpus-item", "run"]),
    "a folder's view": (("export", MODEL, "--gallery", "a", "--view"), ["--view"]),
    "unknown command": (("dance",), ["'dance'"]),
    "unknown analysis": (("show", "dance", MODEL), ["No analysis 'dance'", "etc"]),
    "unknown option": (("show", "etc", MODEL, "--colour", "red"), ["--colour"]),
    "option of another": (("show", "profile", MODEL, "--skip", "4"), ["--skip"]),
    "no value": (("show", "etc", MODEL, "--html"), ["--html", "requires an argument"]),
    "an option as value": (("show", "etc", MODEL, "--html", "--json"), ["--html", "'--json'"]),
    "too large": (("show", "etc", MODEL, "--skip", "33"), ["--skip", "33", "0<=x<=32"]),
    "no choice": (
        ("show", "kernel", MODEL, "--source", "dream"), ["--source", "'dream'", "mean", "token"],
    ),
    "no device": (("show", "etc", MODEL, "--device", "gpu"), ["--device", "cuda:1", "'gpu'"]),
    "no shard": (("precompute", MODEL, "--shard", "8/8"), ["--shard", "'8/8'"]),
    "not given": (("show", "word-neurons", MODEL), ["--words"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_sentences(capsys, case):
    arguments, words = WRONG[case]

    assert 2 == cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert all(word in err for word in words)
    assert "No analysis" in err or err.endswith("--help').\n")


def examples():
    """The lines of the documentation that show a result of here, as a shell would split them."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    lines = re.findall(r"^poskernel show .*", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines if "--server" not in line]


def test_examples_of_the_documentation(monkeypatch, capsys):
    monkeypatch.setattr(show, "build_request", lambda name, *_, **__: _stop(name))
    for given in examples():
        assert 2 == cli.main(given)
        assert f"Asked for {given[1]}.\n" == capsys.readouterr().err
    assert set(ANALYSES) == {given[1] for given in examples()}


def _stop(name):
    raise BadRequest(f"Asked for {name}.")
