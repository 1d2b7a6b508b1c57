"""Command lines, variables and corpora of strangers: refused at once, in one sentence."""

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from poskernel_core.api import build_request
from poskernel_core.cli import main as cli
from poskernel_core.cli.terminal import printable
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data.moves import parse_layers
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import to_entry
from poskernel_core.storage.store import Store
from tests.support.bound import opened_as_linked

CONTEXT = 29
LONG, DIGITS = "a" * 5000, "9" * 5000
SHOW = ("show", "etc", "MODEL", "--context", CONTEXT)
KERNEL = ("show", "kernel", "MODEL", "--context", CONTEXT)
INPUTS = {
    "no such home": (("show", "etc", "~nouser"), "no config.json"),
    "5,000 letters": (("show", "etc", LONG), "5000"),
    "a path of 1,000 letters": (("show", "etc", "./" + "a" * 1000), "no config.json"),
    "export to nothing": (("export", "MODEL", ""), "file to write"),
    "export to a folder": (("export", "MODEL", "/tmp"), "file to write"),
    "page without a name": ((*SHOW, "--html", ""), "file to write"),
    "page in no folder": ((*SHOW, "--html", "./nowhere/page.html"), "folder does not exist"),
    "name of no bytes": (("show", "etc", "\udcff"), "UTF-8"),
    "zero byte": ((*SHOW, "--corpus", "a\0b"), "UTF-8"),
    "corpus of 5,000 letters": ((*SHOW, "--corpus", LONG), "No corpus"),
    "corpus of an experiment": ((*SHOW, "--corpus", "random"), "belongs to the experiments"),
    "corpus on the hub": ((*SHOW, "--corpus", "openwebtext"), "cannot be reached"),
    "head of 5,000 digits": ((*SHOW, "--head", f"L{DIGITS}H0"), "A head is written"),
    "texts of 5,000 digits": ((*SHOW, "--windows", DIGITS), "--windows"),
    "device in other digits": ((*SHOW, "--device", "cuda:\u0663"), "device"),
    "unknown model": (("show", "etc", "./nowhere"), "config.json"),
    "no model": (("show", "etc", ""), "model name"),
    "hub model offline": (("show", "etc", "nobody/nothing"), "demo-gpt2"),
    "head outside": ((*SHOW, "--head", "L0H5"), "L0H0 to L2H4"),
    "query outside": ((*KERNEL, "--query", 29), "choose 0 to 28"),
    "unknown corpus": ((*SHOW, "--corpus", "nowhere"), "No corpus 'nowhere'"),
    "context too long": ((*SHOW, "--context", 42), "2 to 41 tokens"),
    "revision of a directory": ((*SHOW, "--revision", "v1"), "revisions"),
    "chapter of no bible": ((*SHOW, "--corpus-item", "Job"), "no text 'Job'"),
    "text source without text": ((*KERNEL, "--source", "text"), "a text, got"),
    "import of nothing": (("import", "nowhere.zip"), "nowhere.zip"),
    "export of nothing": (("export", "MODEL", "x.zip"), "Nothing is cached"),
    "terminal's escape": (("show", "\x1b[31metc", "MODEL"), "No analysis '\\x1b[31metc'"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_refused_at_once(refused, model_dirs, case):
    arguments, words = INPUTS[case]

    assert words in refused(*(str(model_dirs["gpt2"]) if a == "MODEL" else a for a in arguments))


@pytest.mark.parametrize(
    ("name", "value"), [("POSKERNEL_CACHE_GB", "0.00001"), ("POSKERNEL_DEVICE", "abacus")]
)
def test_variables(refused, model_dirs, monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    assert name in refused(*(str(model_dirs["gpt2"]) if a == "MODEL" else a for a in SHOW))


def test_a_variable_on_a_page(monkeypatch):
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "often")

    drawn = opened_as_linked()

    assert [] == list(drawn.exception)
    assert "POSKERNEL\\_CHECKPOINT\\_SECONDS" in drawn.error[0].value


def forged(path):
    np.save(path, np.zeros((3, CONTEXT), np.int64))
    path.write_bytes(path.read_bytes().replace(b"(3, 29), }          ", b"(3000000000, 29), } "))


def cut_parquet(path):
    parquet.write_table(pyarrow.table({"text": ["a b c"] * 1000}), path)
    path.write_bytes(path.read_bytes()[:200])


def lines(text):
    return lambda path: path.write_text(text + "\n")


def table(*values):
    return lambda path: parquet.write_table(pyarrow.table({"text": values}), path)


def array(value):
    return lambda path: np.save(path, value)


def columns(path):
    table = pyarrow.table({"question": ["a"], "votes": [1], "answer": ["b"]})
    parquet.write_table(table, path)


def numbers(path):
    parquet.write_table(pyarrow.table({"text": [1, 2]}), path)


A_LINE = """expected a line such as {"text": "She sells sea shells."}, got """
CORPORA = {
    # name of the file, what writes it, words of the sentence
    "fractions": ("a.npy", array(np.zeros((3, CONTEXT))), "got float64"),
    "another length": ("a.npy", array(np.zeros((3, 11), int)), "[3, 11]"),
    "forged shape": ("a.npy", forged, "does not hold"),
    "objects": ("a.npy", array(np.array([[{}]], dtype=object)), "a.npy"),
    "cut table": ("a.parquet", cut_parquet, "a.parquet"),
    "no text": ("a.txt", lambda path: path.write_bytes(b"\x89PNG\r\n\xff\xfe"), "a.txt"),
    "no column": ("a.jsonl", lines('{"body": "a"}'), A_LINE + '\'{"body": "a"}\''),
    "two columns": ("a.parquet", columns, "'text'; its texts are in 'question', 'answer': give"),
    "two fields": ("a.jsonl", lines('{"q": "a", "n": 1, "a": "b"}'), "its texts are in 'q', 'a': "),
    "wide letters, no mark": ("a.txt", lambda path: path.write_bytes(b"a\0b\0"), "holds zeros"),
    "nested": ("a.jsonl", lines("[" * 100_000), A_LINE),
    "half a character": ("a.jsonl", lines('{"text": "a \\ud800 b"}'), A_LINE),
    "a list": ("a.jsonl", lines("[1, 2]"), A_LINE + "'[1, 2]' as line 1."),
    "not even JSON": ("a.jsonl", lines("\n\nhello"), A_LINE + "'hello' as line 3."),
    "a text in parts": ("a.jsonl", lines('{"text": ["a", "b"]}'), A_LINE),
    "numbers for texts": ("a.parquet", numbers, "its column 'text' holds int64, expected texts"),
    "a column of lists": ("a.parquet", table(["a", "b"]), "holds list<"),
    "another alphabet": ("a.txt", lambda path: path.write_bytes(b"\xe9t\xe9"), "not text in UTF-8"),
    "another kind": ("a.doc", lines("hello"), ".jsonl"),
}


@pytest.mark.parametrize("case", CORPORA)
def test_corpora(refused, model_dirs, tmp_path, case):
    name, make, words = CORPORA[case]
    make(tmp_path / name)
    arguments = (str(model_dirs["gpt2"]) if a == "MODEL" else a for a in SHOW)

    assert words in refused(*arguments, "--corpus", tmp_path / name)


def test_a_character_on_the_edge(tmp_path):
    """The look at a long text does not end inside a character."""
    file = tmp_path / "long.txt"
    file.write_text("é" * 2**20 + "x")

    assert describe_run("demo-gpt2", corpus=CorpusSpec(name=str(file))).corpus.fingerprint


def test_a_device_matters_for_what_is_computed(model_dirs, tmp_path, monkeypatch, capsys):
    """What is stored is shown whatever device is named, as long as it is written as one."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    path = str(model_dirs["gpt2"])
    asked = make_plan(build_request("etc", path, context=CONTEXT)[0])
    result = Result(
        "etc", {}, {"etc": np.array([2.0])}, {"etc": ("layer",)}, {"etc": "tokens"},
        provenance={"model": path, "windows": 7, "windows_asked": 500, "context": CONTEXT,
                    "corpus": "sample", "dtype": "float32", "device": "cpu", "date": "today"},
    )  # fmt: skip
    Store(tmp_path).put(asked.key, *to_entry(result))
    command = ["show", "etc", path, "--context", str(CONTEXT), "--json"]
    seen, make = [], Engine.__init__

    def listen(self, store, execution):
        seen.append(execution.device)
        make(self, store, execution)

    monkeypatch.setattr(Engine, "__init__", listen)

    monkeypatch.setenv("POSKERNEL_DEVICE", "cuda:7")
    assert 0 == cli.main(command)
    assert 0 == cli.main([*command, "--device", "mps"])
    assert 2 == cli.main([*command, "--device", "abacus"])

    assert ["cuda:7", "mps"] == seen
    assert 2 == len([json.loads(line) for line in capsys.readouterr().out.splitlines()])


def test_figures_of_strangers(refused, model_dirs, tmp_path):
    (tmp_path / "figures.json").write_text("[" * 100_000)

    words = refused("reproduce", model_dirs["gpt2"], "--figures", tmp_path / "figures.json")
    assert "nested too deeply" in words


def test_what_is_no_head(unchecked):
    for text in (3, None, ("L0H1",), b"L0H1", "L\u0660H\u0661", "L²H0", f"L{DIGITS}H0"):
        with pytest.raises(BadRequest, match=r"^A head is written L<layer>H<head>"):
            parse_cell(text, 9, 9)
    for text in ("\u0660", "²", DIGITS):
        with pytest.raises(BadRequest):
            parse_layers(text, 9)


def test_printable():
    assert "Ünï 語 \\x1b[0m\\x9b\\u202e\\ud800" == printable("Ünï 語 \x1b[0m\x9b\u202e\ud800")
    assert "a\\nb\\r" == printable("a\nb\r")
    assert "a\nb\\r" == printable("a\nb\r", lines=True)
