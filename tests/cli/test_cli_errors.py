"""The command line refuses what it cannot do: exit code 2, one sentence, no traceback."""

import json
import shutil

import pytest

from tests.cli.test_cli import CONTEXT, TEXTS, assert_sentence, own_cache, place, run, small

__all__ = ["own_cache", "place", "run", "small"]

pytestmark = pytest.mark.usefixtures("near_worker")


@pytest.mark.slow
def test_too_little_text(run, small):
    arguments = [TEXTS * 1000 if a == TEXTS else a for a in small]

    code, out, err = run("show", "etc", *arguments)

    assert (2, "") == (code, out)
    assert_sentence(err, f"windows of {CONTEXT} tokens, {TEXTS * 1000} were asked")


def without_weights(path):
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def config(**fields):
    """Return what changes a configuration; without a kind of model, nothing else is left of it."""

    def spoil(path):
        old = json.loads((path / "config.json").read_text())
        kept = {} if "model_type" in fields else old
        (path / "config.json").write_text(json.dumps({**kept, **fields}))

    return spoil


SPOILT = {
    # what is done to the directory, words of the message
    "pickled only": (without_weights, "pickled"),
    "no config": (lambda path: (path / "config.json").unlink(), "no config.json"),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "model.safetensors"),
    "config lacks sizes": (config(model_type="gpt2"), "lacks"),
    "an encoder": (config(model_type="t5"), "encoder"),
    "unheard of": (config(model_type="abacus"), "abacus"),
    "sizes do not fit": (config(n_embd=40), "do not fit"),  # which a worker finds
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, marks=pytest.mark.slow) if "fit" in each else each for each in SPOILT],
)
def test_spoilt_models(run, tmp_path, small, model_dirs, case):
    spoil, words = SPOILT[case]
    path = shutil.copytree(model_dirs["gpt2"], tmp_path / "bad")
    spoil(path)

    code, out, err = run("show", "etc", path, *small[1:])

    assert (2, "") == (code, out)
    assert_sentence(err, words)


WRONG = {
    "unknown model": (("show", "etc", "./nowhere"), "config.json"),
    "no model": (("show", "etc", ""), "model name"),
    "hub model offline": (("show", "etc", "nobody/nothing"), "demo-gpt2"),
    "impossible hub name": (("show", "etc", "a b?c"), "No model"),
    "head misspelt": (("show", "etc", "MODEL", "--head", "3,1"), "L0H0 to L2H4"),
    "head outside": (("show", "etc", "MODEL", "--head", "L0H5"), "L0H0 to L2H4"),
    "query outside": (("show", "kernel", "MODEL", "--query", 29), "choose 0 to 28"),
    "query negative": (("show", "kernel", "MODEL", "--query", -1), "choose 0 to 28"),
    "unknown corpus": (("show", "etc", "MODEL", "--corpus", "nowhere"), "No corpus 'nowhere'"),
    "context too long": (("show", "etc", "MODEL", "--context", 42), "2 to 41 tokens"),
    "context too short": (("show", "etc", "MODEL", "--context", 1), "2 to 41 tokens"),
    "revision of a directory": (("show", "etc", "MODEL", "--revision", "v1"), "revisions"),
    "chapter of no bible": (("show", "etc", "MODEL", "--corpus-item", "Job"), "no text 'Job'"),
    "text source without text": (("show", "kernel", "MODEL", "--source", "text"), "a text, got"),
    "import of nothing": (("import", "nowhere.zip"), "nowhere.zip"),
    "export of nothing": (("export", "MODEL", "x.zip"), "Nothing is cached"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_requests(run, place, small, case, monkeypatch):
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
    code, out, err = run(
        "show", "kernel", *small, "--query", 11, "--source", "token", "--token", " Zebra crossing"
    )

    assert (2, "") == (code, out)
    assert_sentence(err, "one token")


def test_store_that_is_a_file(run, small, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "file"))

    code, _, err = run("models")

    assert code in (1, 2)
    assert_sentence(err, str(tmp_path))


def test_store_that_is_damaged(run, small, tmp_path, monkeypatch):
    (tmp_path / "cache.db").write_bytes(b"no database, but long enough to be looked at" * 99)
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))

    code, out, err = run("models")

    assert 0 == code
    assert "demo-gpt2" in out
    assert "" == err
