"""The command line refuses what it cannot do: exit code 2, one sentence, no traceback."""

import json
import shutil

import pytest

from tests.cli.test_cli import CONTEXT, TEXTS, assert_sentence, own_cache, place, run, small

__all__ = ["own_cache", "place", "run", "small"]

pytestmark = pytest.mark.usefixtures("near_worker")


@pytest.mark.slow
def test_too_little_text(run, small):
    """The message has the numbers, and offers what there is."""
    arguments = [TEXTS * 1000 if a == TEXTS else a for a in small]

    code, out, err = run("show", "etc", *arguments)

    assert (2, "") == (code, out)
    assert_sentence(err, f"windows of {CONTEXT} tokens, {TEXTS * 1000} were asked")


def bad_directory(place, source, name, spoil):
    """A copy of a model, spoilt."""
    path = place / name
    if not path.exists():
        shutil.copytree(source, path)
        spoil(path)
    return path


def without_weights(path):
    """Leave a pickle only."""
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def cut_weights(path):
    """Leave half of the weights."""
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def other_sizes(path):
    """Claim another width."""
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "n_embd": 40}))


def architecture(name):
    """Return what leaves a configuration of that architecture without sizes."""
    return lambda path: (path / "config.json").write_text(json.dumps({"model_type": name}))


SPOILT = {
    # what is done to the directory, words of the message, whether a worker must look at it
    "pickled only": (without_weights, "pickled", False),
    "no config": (lambda p: (p / "config.json").unlink(), "no config.json", False),
    "config no JSON": (lambda p: (p / "config.json").write_text("{"), "not a JSON object", False),
    "config lacks sizes": (architecture("gpt2"), "lacks", False),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), "model.safetensors", False),
    "t5": (architecture("t5"), "encoder", False),
    "unheard of": (architecture("abacus"), "abacus", False),
    "weights cut": (cut_weights, "damaged", False),
    "sizes do not fit": (other_sizes, "do not fit", True),
    "no tokenizer": (
        lambda p: [f.unlink() for f in p.glob("tokenizer*")], ".npy", False,
    ),
    "tokenizer damaged": (
        lambda p: (p / "tokenizer.json").write_text("{"), "tokenizer.json", False,
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
    "unknown command": (("dance",), "dance"),
    "unknown analysis": (("show", "nonsense", "MODEL"), "No analysis 'nonsense'"),
    "unknown model": (("show", "etc", "./nowhere"), "config.json"),
    "no model": (("show", "etc", ""), "model name"),
    "hub model offline": (("show", "etc", "nobody/nothing"), "demo-gpt2"),
    "impossible hub name": (("show", "etc", "a b?c"), "No model"),
    "head misspelt": (("show", "etc", "MODEL", "--head", "3,1"), "L0H0 to L2H4"),
    "head outside": (("show", "etc", "MODEL", "--head", "L0H5"), "L0H0 to L2H4"),
    "query outside": (("show", "kernel", "MODEL", "--query", 29), "choose 0 to 28"),
    "query negative": (("show", "kernel", "MODEL", "--query", -1), "choose 0 to 28"),
    "query no number": (("show", "kernel", "MODEL", "--query", "x"), "--query"),
    "skip too large": (("show", "etc", "MODEL", "--skip", 99), "skip"),
    "unknown corpus": (("show", "etc", "MODEL", "--corpus", "nowhere"), "No corpus 'nowhere'"),
    "context too long": (("show", "etc", "MODEL", "--context", 42), "2 to 41 tokens"),
    "context too short": (("show", "etc", "MODEL", "--context", 1), "2 to 41 tokens"),
    "texts zero": (("show", "etc", "MODEL", "--windows", 0), "--windows"),
    "device unknown": (("show", "etc", "MODEL", "--device", "abacus"), "abacus"),
    "dtype unknown": (("show", "etc", "MODEL", "--dtype", "int2"), "int2"),
    "option unknown": (("show", "etc", "MODEL", "--colour", "red"), "--colour"),
    "option of another": (("show", "profile", "MODEL", "--skip", 4), "skip"),
    "revision of a directory": (("show", "etc", "MODEL", "--revision", "v1"), "revisions"),
    "chapter of no bible": (("show", "etc", "MODEL", "--corpus-item", "Job"), "no text 'Job'"),
    "text source without text": (("show", "kernel", "MODEL", "--source", "text"), "a text, got"),
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
def test_bad_size_of_the_store(run, monkeypatch, limit, words):
    """A limit that is no size is named, without a traceback."""
    monkeypatch.setenv("POSKERNEL_CACHE_GB", limit)

    code, out, err = run("models")

    assert (2, "") == (code, out)
    assert_sentence(err, words)


def test_store_that_is_a_file(run, small, tmp_path, monkeypatch):
    """A cache that is a file gives a sentence and no traceback."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "file"))

    code, _, err = run("models")

    assert code in (1, 2)
    assert_sentence(err, str(tmp_path))


def test_store_that_is_damaged(run, small, tmp_path, monkeypatch):
    """What lies in the database's place is set aside, that is said, and all goes on."""
    (tmp_path / "cache.db").write_bytes(b"no database, but long enough to be looked at" * 99)
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))

    code, out, err = run("models")

    assert 0 == code
    assert "demo-gpt2" in out
    assert_sentence(err, "has been made anew; 0 results were kept")
