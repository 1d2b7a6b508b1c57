"""The command line: the same numbers as Python, and one sentence for everything that is wrong."""

import json
import shutil

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import poskernel_core as pk
from poskernel_core import Engine
from poskernel_core.cli import main as cli
from poskernel_core.engine.engine import close_shared
from poskernel_core.export.files import to_json
from poskernel_core.storage.store import Store
from tests.support import builders

pytestmark = pytest.mark.usefixtures("near_worker")

CONTEXT, TEXTS = 29, 7


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    builders.mini_corpus(folder)
    return folder


@pytest.fixture(autouse=True)
def own_cache(place, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(place / "cache"))
    yield
    close_shared()


@pytest.fixture
def run(capsys):
    """Run a command; returns exit code, standard output and standard error."""

    def one(*arguments):
        code = cli.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return one


@pytest.fixture(scope="module")
def small(place, model_dirs):
    corpus = ("--corpus", str(place / "mini.txt"))
    size = ("--context", CONTEXT, "--windows", TEXTS, "--device", "cpu")
    return (str(model_dirs["gpt2"]), *corpus, *size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("analysis", "options", "params", "chosen"),
    [
        ("etc", ("--skip", 0, "--local-tokens", 3), {"skip": 0, "local_tokens": 3}, {}),
        ("etc", ("--query", 11, "--head", "L1H3"), {}, {"query": 11, "head": "L1H3"}),
        ("kernel", ("--query", 11, "--head", "l2h4"), {"query": 11}, {"head": "L2H4"}),
        ("kernel-map", ("--head", "L1H3"), {"head": "L1H3"}, {}),
    ],
)
def test_show_is_that_of_python(run, place, small, analysis, options, params, chosen):
    code, out, err = run("show", analysis, *small, *options, "--json")

    assert (0, "") == (code, err)
    size = {"corpus": place / "mini.txt", "context": CONTEXT, "windows": TEXTS}
    there = pk.show(analysis, small[0], params=params, **chosen, **size)
    assert json.loads(to_json(there)) == json.loads(out)


@pytest.mark.slow
def test_outputs(run, small, tmp_path):
    code, out, _ = run("show", "etc", *small, "--npz", tmp_path / "etc.npz", "--json")
    printed = json.loads(out)
    with np.load(tmp_path / "etc.npz") as arrays:
        for held, name in (("etc", "values"), ("etc_error", "errors")):
            np.testing.assert_array_equal(np.array(printed[name]["etc"], float), arrays[held])
        about = json.loads(str(arrays["about"]))

    assert 0 == code
    assert printed["run"] == {**about, "params": printed["run"]["params"]}
    assert ["etc.npz"] == [file.name for file in tmp_path.iterdir()]
    code, out, _ = run("show", "etc", *small)
    assert 0 == code
    assert "half_mass_distance [layer x head x query] in tokens" in out


@pytest.mark.slow
def test_relative_paths(run, small, place, model_dirs, monkeypatch):
    monkeypatch.chdir(place)
    shutil.copytree(model_dirs["gpt2"], place / "here")
    monkeypatch.setenv("POSKERNEL_CACHE", "relative-cache")

    code, _, err = run("show", "profile", "./here", "--corpus", "mini.txt", *small[3:], "--json")

    assert (0, "") == (code, err)
    assert (place / "relative-cache" / "cache.db").is_file()


@pytest.mark.slow
def test_show_live(run, monkeypatch, tmp_path):
    """A line of JSON for each stage, the last of all windows; else the findings, aside.

    Without `--live` nothing but the result is computed and kept.
    """
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    asked = ("show", "etc", "demo-attn-2l", "--windows", 40, "--context", 32, "--query", 11)
    code, out, err = run(*asked, "--live", "--json")
    lines = [json.loads(line) for line in out.splitlines()]

    assert (0, "") == (code, err)
    assert all(
        {"windows", "of", "values", "lows", "highs", "errors"} == set(line) for line in lines
    )
    assert {40} == {line["of"] for line in lines}
    assert 4 == lines[0]["windows"] < lines[-1]["windows"]
    whole = json.loads(run(*asked, "--json")[1])
    assert whole["values"] == lines[-1]["values"]
    assert whole["run"]["windows"] == lines[-1]["windows"]
    form = Draft202012Validator(pk.schema("etc", live=True))
    for line in lines:
        form.validate(line)
    for wrong in ({**lines[0], "at": {}}, {**lines[0], "of": "40"}, {"windows": 4, "of": 40}):
        assert not form.is_valid(wrong)
    assert not Draft202012Validator(pk.schema("kernel", live=True)).is_valid(lines[0])

    _, out, err = run(*asked, "--live")
    assert "40 of 40 windows: " in err
    assert out.startswith("etc of ")
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "alone"))
    assert 0 == run(*asked)[0]
    results = [header for _, header in Store(tmp_path / "alone").headers() if "analysis" in header]
    assert [40] == [header["provenance"]["windows"] for header in results]


@pytest.mark.slow
def test_precompute_export_import(run, small, place, tmp_path, monkeypatch):
    assert 0 == run("precompute", *small)[0]
    code, _, err = run("export", small[0], tmp_path / "results.zip")
    assert (0, True) == (code, "entries" in err)
    _, first, _ = run("show", "etc", *small, "--json")

    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "other"))
    code, _, err = run("import", tmp_path / "results.zip")
    assert (0, True) == (code, "imported" in err)
    monkeypatch.setattr(Engine, "submit", None)
    code, again, err = run("show", "etc", *small, "--json")
    assert (0, "") == (code, err)
    assert json.loads(first) == json.loads(again)


def test_models(run, small, monkeypatch):
    monkeypatch.setenv("POSKERNEL_MODELS", f"{small[0]}, gpt2")

    code, out, err = run("models")

    assert (0, "") == (code, err)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert {"demo-gpt2", "demo-attn-2l", "gpt2", small[0]} <= set(lines)
    assert 1 == sum(line.startswith("gpt2 ") for line in out.splitlines())
    assert "on the hub" in lines["gpt2"]
    assert "ready" in lines["demo-gpt2"] or "cached" in lines["demo-gpt2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--windows", 7000), f"windows of {CONTEXT} tokens, 7000 were asked"),
        (("--query", 11, "--source", "token", "--token", " Zebra crossing"), "one token"),
    ],
)
def test_what_a_worker_finds(run, small, options, words):
    code, out, err = run("show", "kernel", *small, *options)

    assert (2, "", 1) == (code, out, err.count("\n"))
    assert words in err
