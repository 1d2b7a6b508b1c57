"""The command line: the same numbers as Python, and one sentence for everything that is wrong."""

import importlib.util
import json
import shutil

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core import Engine, Execution, Store, cli
from poskernel_core.config import CorpusSpec
from tests import builders

CONTEXT, TEXTS = 29, 7


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small corpus and a cache of its own."""
    folder = tmp_path_factory.mktemp("cli")
    builders.mini_corpus(folder)
    return folder


@pytest.fixture(autouse=True)
def own_cache(place, monkeypatch):
    """Nothing touches the project's cache."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(place / "cache"))


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
    """The arguments that name the model, its corpus and the size of the run."""
    corpus = ("--corpus", str(place / "mini.txt"))
    size = ("--context", CONTEXT, "--texts", TEXTS, "--device", "cpu")
    return (str(model_dirs["gpt2"]), *corpus, *size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("analysis", "options", "params", "chosen"),
    [
        ("etc", (), {}, {}),
        ("etc", ("--skip", 0, "--local-tokens", 3), {"skip": 0, "local_tokens": 3}, {}),
        ("etc", ("--query", 11, "--cell", "L1H3"), {}, {"query": 11, "layer": 1, "head": 3}),
        ("kernel", ("--query", 11), {"query": 11}, {}),
        ("kernel", ("--query", 11, "--cell", "l2h4"), {"query": 11}, {"layer": 2, "head": 4}),
        ("kernel-map", ("--cell", "L1H3"), {"cell": "L1H3"}, {}),
        ("profile", (), {}, {}),
    ],
)
def test_show_is_analyse(run, place, small, analysis, options, params, chosen):
    """`show --json` prints what `analyse` computes from the same windows in memory."""
    code, out, err = run("show", analysis, *small, *options, "--json")

    assert (0, "") == (code, err)
    printed = json.loads(out)
    expected = pk.analyse(analysis, gathered(place, small), **params).select(**chosen).as_json()
    assert {"analysis", "run", "values", "units", "errors"} <= set(printed)
    assert analysis == printed["analysis"]
    assert expected["units"] == printed["units"]
    assert expected["axes"] == printed["axes"]
    for part in ("values", "errors"):
        assert set(expected[part]) == set(printed[part])
        for name, values in expected[part].items():
            close(values, printed[part][name])


def gathered(place, small):
    """The statistics of the command line's run, gathered in this process."""
    from poskernel_core import catalog, corpora
    from poskernel_core.tokenizers import load_tokenizer

    windows = corpora.token_windows(
        CorpusSpec(name=str(place / "mini.txt")),
        load_tokenizer(catalog.locate(small[0])),
        context=CONTEXT,
        windows=TEXTS,
        start_token=True,
    )
    return pk.run_pass(pk.load(small[0], device="cpu"), windows)


def close(expected, found):
    """Nested lists are equal: words exactly, numbers up to rounding, None as None."""
    left, right = np.array(expected, dtype=object), np.array(found, dtype=object)
    assert left.shape == right.shape
    words = [isinstance(x, str) for x in left.flat]
    if any(words):
        assert left.tolist() == right.tolist()
    else:
        np.testing.assert_allclose(left.astype(float), right.astype(float), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_show_is_python_show(run, place, small):
    """`pk.show` gives the numbers that the command line prints, from the same store."""
    _, out, _ = run("show", "etc", *small, "--query", 11, "--json")

    with_engine = Engine(Store(), Execution(device="cpu"))
    result = pk.show(
        "etc",
        small[0],
        query=11,
        engine=with_engine,
        corpus=CorpusSpec(name=str(place / "mini.txt")),
        context=CONTEXT,
        windows=TEXTS,
    )
    with_engine.close()
    assert json.loads(out) == json.loads(json.dumps(result.as_json()))


@pytest.mark.slow
def test_outputs(run, small, tmp_path):
    """Summary and .npz hold the same values; nothing half-written is left."""
    code, out, _ = run("show", "etc", *small, "--npz", tmp_path / "etc.npz", "--json")
    printed = json.loads(out)
    with np.load(tmp_path / "etc.npz") as arrays:
        close(printed["values"]["etc"], arrays["etc"].tolist())
        close(printed["errors"]["etc"], arrays["etc_error"].tolist())
        about = json.loads(str(arrays["about"]))

    assert 0 == code
    assert printed["run"] == {**about, "params": printed["run"]["params"]}
    assert ["etc.npz"] == [file.name for file in tmp_path.iterdir()]
    code, out, _ = run("show", "etc", *small)
    assert 0 == code
    assert "half_mass_distance [layer x head x query] in tokens" in out


@pytest.mark.slow
def test_unwritable_output(run, small, tmp_path):
    """A folder that does not exist is bad, in one sentence."""
    code, _, err = run("show", "etc", *small, "--npz", tmp_path / "nowhere" / "etc.npz")

    assert 2 == code
    assert_sentence(err, "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("analysis", ["etc", "kernel", "kernel-map", "profile"])
def test_html(run, small, tmp_path, analysis):
    """A stand-alone page that asks nothing of the network."""
    if importlib.util.find_spec("pages.parts.figures.of_result") is None:
        pytest.skip("pages.parts.figures.of_result is not written yet")

    code, _, err = run("show", analysis, *small, "--html", tmp_path / "page.html")

    assert (0, "") == (code, err)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Plotly.newPlot" in page
    assert '<script src="http' not in page


@pytest.mark.slow
def test_relative_paths(run, small, place, model_dirs, monkeypatch):
    """A model, a corpus and a cache may be named relative to where the command is run."""
    monkeypatch.chdir(place)
    shutil.copytree(model_dirs["gpt2"], place / "here")
    monkeypatch.setenv("POSKERNEL_CACHE", "relative-cache")

    code, _, err = run(
        "show", "profile", "./here", "--corpus", "mini.txt", *small[3:], "--json"
    )

    assert (0, "") == (code, err)
    assert (place / "relative-cache" / "cache.db").is_file()


@pytest.mark.slow
def test_precompute_export_import(run, small, place, tmp_path, monkeypatch):
    """What one machine computed, another shows without computing."""
    assert 0 == run("precompute", *small)[0]
    code, _, err = run("export", small[0], tmp_path / "results.zip")
    assert (0, True) == (code, "entries" in err)
    _, first, _ = run("show", "etc", *small, "--json")

    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "other"))
    code, _, err = run("import", tmp_path / "results.zip")
    assert (0, True) == (code, "imported" in err)
    monkeypatch.setattr(Engine, "submit", None)
    assert (0, first, "") == run("show", "etc", *small, "--json")


@pytest.mark.slow
def test_too_little_text(run, small):
    """The message has the numbers, and offers what there is."""
    arguments = [TEXTS * 1000 if a == TEXTS else a for a in small]

    code, out, err = run("show", "etc", *arguments)

    assert (2, "") == (code, out)
    assert_sentence(err, f"windows of {CONTEXT} tokens, {TEXTS * 1000} were asked")


def assert_sentence(err, words):
    """One line, a sentence, with these words, and no traceback."""
    assert words in err
    assert 1 == err.count("\n")
    assert "Traceback" not in err
    assert err.strip().endswith((".", ").", "'."))


def bad_directory(place, source, name, spoil):
    """A copy of a model, spoilt."""
    path = place / name
    if not path.exists():
        shutil.copytree(source, path)
        spoil(path)
    return path


def without_weights(path):
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def cut_weights(path):
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def other_sizes(path):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "n_embd": 40}))


def architecture(name):
    return lambda path: (path / "config.json").write_text(json.dumps({"model_type": name}))


SPOILT = {
    # what is done to the directory, words of the message, whether a worker must look at it
    "pickled only": (without_weights, "pickled", False),
    "no config": (lambda p: (p / "config.json").unlink(), "no config.json", False),
    "config no JSON": (lambda p: (p / "config.json").write_text("{"), "not a JSON object", False),
    "config lacks sizes": (architecture("gpt2"), "lacks", False),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), "model.safetensors", False),
    "bloom": (architecture("bloom"), "ALiBi", False),
    "t5": (architecture("t5"), "encoder", False),
    "unheard of": (architecture("abacus"), "abacus", False),
    "weights cut": (cut_weights, "damaged", True),
    "sizes do not fit": (other_sizes, "do not fit", True),
    "no tokenizer": (
        lambda p: [f.unlink() for f in p.glob("tokenizer*")], ".npy", True,
    ),
    "tokenizer damaged": (
        lambda p: (p / "tokenizer.json").write_text("{"), "tokenizer.json", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[pytest.mark.slow] if worker else [])
        for name, (_, _, worker) in SPOILT.items()
    ],
)
def test_spoilt_models(run, place, small, model_dirs, case):
    """A directory that cannot be read gives exit code 2 and says what is wrong with it."""
    spoil, words, _ = SPOILT[case]
    path = bad_directory(place, model_dirs["gpt2"], f"bad {case}", spoil)

    code, out, err = run("show", "etc", path, *small[1:])

    assert (2, "") == (code, out)
    assert_sentence(err, words)


WRONG = {
    "no command": ((), "required"),
    "unknown command": (("dance",), "dance"),
    "unknown analysis": (("show", "entropy", "MODEL"), "No analysis 'entropy'"),
    "unknown model": (("show", "etc", "./nowhere"), "config.json"),
    "no model": (("show", "etc", ""), "model name"),
    "hub model offline": (("show", "etc", "nobody/nothing"), "demo-gpt2"),
    "impossible hub name": (("show", "etc", "a b?c"), "No model"),
    "cell misspelt": (("show", "etc", "MODEL", "--cell", "3,1"), "L0H0 to L2H4"),
    "cell outside": (("show", "etc", "MODEL", "--cell", "L0H5"), "L0H0 to L2H4"),
    "query outside": (("show", "kernel", "MODEL", "--query", 29), "choose 0 to 28"),
    "query negative": (("show", "kernel", "MODEL", "--query", -1), "choose 0 to 28"),
    "query no number": (("show", "kernel", "MODEL", "--query", "x"), "--query"),
    "skip too large": (("show", "etc", "MODEL", "--skip", 99), "skip"),
    "unknown corpus": (("show", "etc", "MODEL", "--corpus", "nowhere"), "No corpus 'nowhere'"),
    "context too long": (("show", "etc", "MODEL", "--context", 42), "2 to 41 tokens"),
    "context too short": (("show", "etc", "MODEL", "--context", 1), "2 to 41 tokens"),
    "texts zero": (("show", "etc", "MODEL", "--texts", 0), "--texts"),
    "device unknown": (("show", "etc", "MODEL", "--device", "abacus"), "abacus"),
    "dtype unknown": (("show", "etc", "MODEL", "--dtype", "int2"), "int2"),
    "option unknown": (("show", "etc", "MODEL", "--colour", "red"), "--colour"),
    "option of another": (("show", "profile", "MODEL", "--skip", 4), "skip"),
    "revision of a directory": (("show", "etc", "MODEL", "--revision", "v1"), "revisions"),
    "chapter of no bible": (("show", "etc", "MODEL", "--corpus-item", "Job"), "no text 'Job'"),
    "text source without text": (("show", "kernel", "MODEL", "--source", "text"), "--text"),
    "source unknown": (("show", "kernel", "MODEL", "--source", "dream"), "source"),
    "import of nothing": (("import", "nowhere.zip"), "nowhere.zip"),
    "export of nothing": (("export", "MODEL", "x.zip"), "Nothing is cached"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_requests(run, place, small, case, monkeypatch):
    """Exit code 2, nothing on standard output, one sentence on standard error."""
    monkeypatch.chdir(place)
    arguments, words = WRONG[case]
    if case == "export of nothing":
        monkeypatch.setenv("POSKERNEL_CACHE", str(place / "empty"))
    given = list(arguments)
    if "MODEL" in given and given[0] == "show":
        spot = given.index("MODEL")
        rest = [a for a in small[1:] if "--corpus" not in given or a not in small[1:3]]
        given[spot : spot + 1] = [small[0], *rest] if "--corpus-item" not in given else [small[0]]
    given = [small[0] if a == "MODEL" else a for a in given]

    code, out, err = run(*given)

    assert (2, "") == (code, out)
    assert_sentence(err, words)


@pytest.mark.slow
def test_two_tokens(run, small):
    """A fixed token that is two is refused, with the tokens that it is."""
    code, out, err = run(
        "show", "kernel", *small, "--query", 11, "--source", "token", "--token", " Zebra crossing"
    )

    assert (2, "") == (code, out)
    assert_sentence(err, "one token")


@pytest.mark.parametrize(("limit", "words"), [("lots", "POSKERNEL_CACHE_GB"), ("-1", "POSKERNEL")])
def test_bad_size_of_the_store(run, small, monkeypatch, limit, words):
    """A limit that is no size is named, without a traceback."""
    monkeypatch.setenv("POSKERNEL_CACHE_GB", limit)

    code, out, err = run("show", "etc", *small)

    assert (2, "") == (code, out)
    assert_sentence(err, words)


@pytest.mark.parametrize("content", [b"", b"no database, but long enough to be looked at" * 99])
def test_store_that_is_none(run, small, tmp_path, monkeypatch, content):
    """A cache that is a file, or whose database is damaged, gives a sentence and no traceback."""
    if content:
        (tmp_path / "cache.db").write_bytes(content)
        monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    else:
        (tmp_path / "file").write_bytes(b"")
        monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "file"))

    code, out, err = run("models")

    assert code in (1, 2)
    assert_sentence(err, str(tmp_path))


def test_models(run, small, monkeypatch):
    """Every model on offer has a line, the host's own too, with what is cached or where it is."""
    monkeypatch.setenv("POSKERNEL_MODELS", f"{small[0]}, gpt2")

    code, out, err = run("models")

    assert (0, "") == (code, err)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert {"demo-gpt2", "demo-attn-2l", "gpt2", small[0]} <= set(lines)
    assert 1 == sum(line.startswith("gpt2 ") for line in out.splitlines())
    assert "on the hub" in lines["gpt2"]
    assert "ready" in lines["demo-gpt2"] or "cached" in lines["demo-gpt2"]
