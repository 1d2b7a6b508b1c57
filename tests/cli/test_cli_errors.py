"""The command line refuses what it cannot do: exit code 2, one sentence, no traceback."""

import json
import shutil

import pytest

from tests.cli.test_cli import CONTEXT, assert_sentence, own_cache, place, run, small

__all__ = ["own_cache", "place", "run", "small"]

pytestmark = pytest.mark.usefixtures("near_worker")


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

    assert (2, "") == (code, out)
    assert_sentence(err, words)


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
    "config lacks sizes": (config(model_type="gpt2"), "do not fit"),  # it has those of the class
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
    "head outside": (("show", "etc", "MODEL", "--head", "L0H5"), "L0H0 to L2H4"),
    "query outside": (("show", "kernel", "MODEL", "--query", 29), "choose 0 to 28"),
    "unknown corpus": (("show", "etc", "MODEL", "--corpus", "nowhere"), "No corpus 'nowhere'"),
    "context too long": (("show", "etc", "MODEL", "--context", 42), "2 to 41 tokens"),
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
    model = small if arguments[0] == "show" else small[:1]

    code, out, err = run(*(part for a in arguments for part in (model if a == "MODEL" else (a,))))

    assert (2, "") == (code, out)
    assert_sentence(err, words)
