"""The help of the command line, analysis by analysis, and what it reads of the order of options."""

import json
import re
import shlex
import subprocess
import sys

import click
import pytest

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.cli import actions
from poskernel_core.cli import main as cli
from poskernel_core.common.errors import BadRequest
from tests.support.server import ROOT, environment

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
    lines = section[1] if section else ""
    found = re.findall(r"^  (--[\w-]+) ?(\S*)\s+(\S.*)$", lines, re.MULTILINE)
    assert len(found) == lines.count("\n  --") + lines.startswith("  --")
    return {name: (metavar, words) for name, metavar, words in found}


def schema(name):
    """An analysis' parameters as JSON schema, which knows bounds and choices by itself."""
    found = ANALYSES[name].params.model_json_schema()["properties"]
    return {
        field: {**next((a for a in each.get("anyOf", []) if a["type"] != "null"), {}), **each}
        for field, each in found.items()
    }


@pytest.mark.parametrize("name", ANALYSES)
def test_each_analysis_has_its_own_parameters(helped, name):
    """No more and no fewer, each as this analysis describes it, with its choices and bounds."""
    text = helped("show", name)
    fields = schema(name)
    required = ANALYSES[name].params.model_json_schema().get("required", [])
    found = entries(text, OWN)

    assert [f"--{field.replace('_', '-')}" for field in fields] == list(found)
    for (field, each), (metavar, words) in zip(fields.items(), found.values(), strict=True):
        meaning, _, facts = words.partition("  [")
        assert each["description"] == meaning
        for bound in ("minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength"):
            if bound in each:
                assert f"{each[bound]:,}" in facts, (field, bound)
        if "enum" in each:
            assert "|".join(each["enum"]) == metavar
        if field in required and field != "query":  # which has a default that the context sets
            assert "required" in facts
        elif each.get("default") not in (None, ""):
            default = each["default"]
            shown = str(default).lower() if isinstance(default, bool) else default
            shown = f"{shown:g}" if isinstance(shown, float) else str(shown)
            plain = re.escape(shown.replace(",", ""))
            assert re.search(rf"default: '?{plain}\b", facts.replace(",", ""))


@pytest.mark.parametrize("name", ANALYSES)
def test_what_every_help_has(helped, name):
    """Title, first sentence, head and query position, outputs, and the same options of the run."""
    text = helped("show", name)
    first = " ".join(type(ANALYSES[name]).__doc__.split("\n\n")[0].replace("`", "").split())

    assert f"  {ANALYSES[name].title}\n\n  {first}\n" in text
    for option in ("--head", "--query", "--json", "--npz", "--html"):
        assert 1 == len(re.findall(rf"^  {option}\b", text, re.MULTILINE))
    assert entries(helped("show", "etc"), RUN) == entries(text, RUN)
    assert {"--windows", "--corpus", "--device", "--seed"} <= set(entries(text, RUN))


def test_entries_by_hand(helped):
    """Default and bounds in brackets; a text with a blank keeps it; what must be given says so."""
    etc, token = (entries(helped("show", name), OWN) for name in ("etc", "token-weights"))

    assert ("N", "first key positions left out  [default: 4; 0 to 32]") == etc["--skip"]
    assert ("X", "mass in them that makes a head local  [default: 0.5; 0 to 1]") == (
        etc["--local-share"]
    )
    assert ("TEXT", "the destination token  [default: ' the'; 1 to 64 characters]") == (
        token["--token"]
    )
    assert "above 0, up to 10]" in entries(helped("show", "helix"), OWN)["--far"][1]
    assert "[required]" in entries(helped("show", "stages"), OWN)["--head"][1]
    flat = entries(helped("show", "random-attention"), OWN)["--equalise-norms"]
    assert "true|false" == flat[0]
    assert flat[1].endswith("[default: false]")
    run = entries(helped("precompute", MODEL), RUN)
    assert ("N", "windows of text  [default: up to 500; at least 1]") == run["--windows"]


def test_lists(helped):
    """A line for each analysis, and for each command."""
    lines = helped("show").splitlines()
    for name, analysis in ANALYSES.items():
        assert 1 == sum(line.split(None, 1) == [name, analysis.title] for line in lines)
    assert helped("show", "--windows", "3") == helped("show")
    for name in ("models", "precompute", "show", "reproduce", "export", "import"):
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
    """Options stand before and after the names."""
    asked = []

    def stop(*names, **options):
        asked.append((names, options))
        raise BadRequest("Enough.")

    monkeypatch.setattr(actions, "build_request", stop)

    assert 2 == cli.main(["show", *given])
    assert "Enough.\n" == capsys.readouterr().err
    ((names, options),) = asked
    assert ("etc", MODEL) == names
    assert ("L0H3", None, {"skip": 4}, 20) == tuple(
        options[name] for name in ("head", "query", "params", "windows")
    )


WRONG = {
    "no analysis": (("show",), "analysis is required: one of etc, kernel"),
    "no analysis, options": (("show", "--windows", "3"), "analysis is required"),
    "no model": (("show", "etc"), "MODEL is required"),
    "no file": (("export", MODEL), "FILE is required"),
    "unknown command": (("dance",), "No command 'dance': expected one of serve"),
    "unknown analysis": (("show", "dance", MODEL), "No analysis 'dance': expected one of etc"),
    "unknown option": (
        ("show", "etc", MODEL, "--colour", "red"),
        "No option '--colour' of 'poskernel show etc': expected one of --skip, --local-tokens",
    ),
    "unknown option first": (("show", "--colour", "etc", MODEL), "No option '--colour'"),
    "option of another": (("show", "profile", MODEL, "--skip", "4"), "No option '--skip'"),
    "two models": (("show", "etc", MODEL, MODEL), "extra argument (demo-gpt2)"),
    "no value": (("show", "etc", MODEL, "--html"), "--html: expected the name of a file, got not"),
    "an option as value": (
        ("show", "etc", MODEL, "--html", "--json"),
        "Option --html: expected the name of a file, got '--json'",
    ),
    "a flag's value": (("show", "etc", MODEL, "--json=1"), "--json: expected no value, got one"),
    "too large": (
        ("show", "etc", MODEL, "--skip", "33"),
        "Option --skip: expected a whole number (0 to 32), got '33' (see 'poskernel show etc -",
    ),
    "no number": (
        ("show", "etc", MODEL, "--local-share", "x"),
        "Option --local-share: expected a number (0 to 1), got 'x'",
    ),
    "zero": (
        ("precompute", MODEL, "--windows", "0"),
        "--windows: expected a whole number (1 to 1,0",
    ),
    "no choice": (
        ("show", "kernel", MODEL, "--source", "dream"),
        "Option --source: expected mean, text or token, got 'dream'",
    ),
    "neither true nor false": (
        ("show", "random-attention", MODEL, "--equalise-norms", "maybe"),
        "Option --equalise-norms: expected true or false, got 'maybe'",
    ),
    "not given": (("show", "word-neurons", MODEL), "Option --words is required: words, such as"),
    "head not given": (("show", "stages", MODEL), "Option --head is required: the head"),
}


@pytest.mark.parametrize("case", WRONG)
def test_sentences(capsys, case):
    """Exit code 2, and one sentence: what was expected, what came, where to read on."""
    arguments, words = WRONG[case]

    assert 2 == cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert words in err
    assert err.endswith("--help').\n")


def test_head(monkeypatch, capsys, tmp_path):
    """A parameter and a selection are given alike, here and in Python."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    for name in ("kernel", "kernel-map"):
        assert 0 == cli.main(["show", name, MODEL, "--head", "L0H3", "--json"])
        printed = json.loads(capsys.readouterr().out)
        assert printed["values"] == pk.show(name, MODEL, head="L0H3").as_json()["values"]


def test_cancelled(monkeypatch, capsys):
    """Ctrl-C ends with code 1 and a word."""

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(actions, "Store", interrupt)

    assert 1 == cli.main(["models"])
    assert ("", "Cancelled.\n") == capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("show", "--help"), ("models",)])
def test_a_reader_that_has_read_enough(tmp_path, arguments):
    """Output that nobody reads any more is no error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "poskernel_core", *arguments], cwd=ROOT, text=True,
        env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    assert ("", 0) == (process.stderr.read(), process.wait())
    process.stderr.close()


def examples():
    """The lines of the documentation that show a result, as a shell would split them."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    lines = re.findall(r"^poskernel show .*", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_examples_of_the_documentation(monkeypatch, capsys):
    """Every one is understood, and every analysis has one."""
    monkeypatch.setattr(actions, "build_request", lambda name, *_, **__: _stop(name))
    for given in examples():
        assert 2 == cli.main(given)
        assert f"Asked for {given[1]}.\n" == capsys.readouterr().err
    assert set(ANALYSES) == {given[1] for given in examples()}


def _stop(name):
    raise BadRequest(f"Asked for {name}.")
