"""What the groups of texts begin with, against documents that are dealt by hand."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.data import beginnings, texts
from poskernel_core.data.beginnings import LETTERS, group_beginnings
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store
from tests.support.stages import carried_out

DOCUMENTS, CONTEXT = 43, 29


@pytest.fixture(autouse=True)
def _anew():
    group_beginnings.cache_clear()


@pytest.fixture
def corpus(tmp_path):
    """Documents of thirteen tokens each, so that they are dealt to the groups in turn."""
    place = tmp_path / "documents.jsonl"
    named = (f"{chr(65 + j // 7)}{chr(75 + j % 7)}" for j in range(DOCUMENTS))
    place.write_text("\n".join(json.dumps({"text": name + "q" * 11}) for name in named))
    return place


def described(model, corpus, windows=20, **more):
    given = {"context": CONTEXT, "windows": windows, "start_token": False}
    return describe_run(str(model), corpus=corpus, **given | more)


def of_file(corpus, seed=0):
    """The documents of a file in the order in which they are read."""
    every = [json.loads(line)["text"] for line in corpus.read_text().splitlines()]
    return [every[j] for j in np.random.default_rng(seed).permutation(len(every))]


@pytest.mark.parametrize("seed", [0, 5])
def test_documents_of_each_group(model_dirs, corpus, seed):
    """Of 58 tokens each group reads 13 of a document and 2 of each blank line: four documents."""
    order = of_file(corpus, seed)
    found = group_beginnings(described(model_dirs["gpt2"], corpus, seed=seed), 20)
    expected = ['"{}", "{}", "{}" and 1 more'.format(*order[group:30:10]) for group in range(10)]
    assert expected == [*found]


def test_only_what_was_read_is_named(model_dirs, corpus):
    """A target may end a run after its first windows: of 29 tokens, two documents."""
    order = of_file(corpus)
    found = group_beginnings(described(model_dirs["gpt2"], corpus), 10)
    assert [f'"{order[group]}", "{order[group + 10]}"' for group in range(10)] == [*found]


def test_stretches_are_named_by_their_first_window(model_dirs, tmp_path):
    """Of a long text, behind the start token; of ready windows alike."""
    (tmp_path / "long.txt").write_text("".join(f"{j:03d};" for j in range(100, 700)))
    run = described(model_dirs["gpt2"], tmp_path / "long.txt", 30)
    firsts = [int(text[1:].split(";")[1]) for text in group_beginnings(run, 30)]
    assert 10 == len(firsts)
    assert min(np.diff(firsts)) > 1
    run = described(model_dirs["gpt2"], tmp_path / "long.txt", 30, start_token=True)
    assert group_beginnings(run, 30)[0].startswith('"100;101')


def test_what_is_not_at_hand_is_not_named(model_dirs, corpus, tmp_path, monkeypatch):
    """A typed text, the hub, a file that is another one by now or gone, another tokenizer."""
    monkeypatch.setattr(texts, "stream_hub", lambda *_: pytest.fail("streamed"))
    own = shutil.copytree(model_dirs["gpt2"], tmp_path / "model")
    typed = described(own, CorpusSpec(name="text", text="She sells sea shells. " * 40))
    hub, ours, other = (
        described(*of) for of in ((own, "wikitext"), (own, corpus), (model_dirs["gpt2"], corpus))
    )

    def unnamed(run, windows=20):
        group_beginnings.cache_clear()
        return () == group_beginnings(run, windows)

    assert [True, True] == [unnamed(typed, 1), unnamed(hub)]
    assert [False, False] == [unnamed(ours), unnamed(other)]
    (own / "tokenizer.json").write_text((own / "tokenizer.json").read_text() + " ")
    assert [True, False] == [unnamed(ours), unnamed(other)]
    corpus.write_text(corpus.read_text().replace("q", "r"))
    assert unnamed(other)
    corpus.unlink()
    shutil.rmtree(own)
    assert [True, True] == [unnamed(ours), unnamed(other)]


@given(st.lists(st.text(max_size=90), max_size=7))
def test_quotes_are_json_on_one_line(documents):
    """Whatever the documents hold: up to three quotes, each of 40 characters, without controls."""
    text = beginnings.first_words(tuple(documents))
    decoder, quoted, rest = json.JSONDecoder(), [], text
    while rest.startswith('"'):
        quote, end = decoder.raw_decode(rest)
        quoted.append(quote)
        rest = rest[end:].removeprefix(", ")
    assert all(0 < len(quote) <= LETTERS and quote.isprintable() for quote in quoted)
    shown = [line for line in documents if any(c.isprintable() and c != " " for c in line)]
    assert min(3, len(shown)) == len(quoted)
    assert (f" and {len(shown) - 3} more" if len(shown) > 3 else "") == rest


def test_long_documents_are_cut():
    text = "a" * 38 + " bc\n"
    assert f'"{"a" * 38}…"' == beginnings.first_words((text,))
    assert f'"{"a" * 37} bc"' == beginnings.first_words((text[1:],))


def test_the_answer_names_them(model_dirs, corpus, tmp_path):
    """Beside the influence of each group; where the corpus is gone, the answer lacks them."""
    run = described(model_dirs["gpt2"], corpus)
    shared = WorkerContext(Store(tmp_path / "store"))

    def asked(**params):
        request = Request(analysis="how-many-texts", run=run, params={"query": 11, **params})
        return carried_out(shared, make_plan(request))

    answer = asked()
    assert [*group_beginnings(run, 20)] == answer.words("beginning")
    assert ("left_out",) == answer.axes["beginning"]
    assert answer.only("influence").words("beginning") == answer.words("beginning")
    shown = answer.as_json()["texts"]["beginning"]
    assert shown == answer.words("beginning")
