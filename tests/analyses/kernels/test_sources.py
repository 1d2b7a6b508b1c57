"""Where a kernel's queries come from: one text's own, or one fixed token; their passes."""

import numpy as np
import pytest

from poskernel_core.analyses.sources import SourceParams, source_runs
from poskernel_core.common.specs import CorpusSpec, ModelSpec, Request, RunSpec
from poskernel_core.data import corpora
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.storage.statistics import StoredStatistics
from tests.support import builders, oracles
from tests.support.refusals import refused
from tests.support.truth import truth_of

CONTEXT, WAIT = 29, 300.0
RUN = RunSpec(
    model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
    context=29, windows=1000, positions=(7, 28),
)  # fmt: skip


@pytest.mark.parametrize(
    ("params", "query", "words"),
    [({"source": "token"}, None, "one query position"),
     ({"source": "text", "text": " "}, 7, "Expected a text")],
)  # fmt: skip
def test_refused(params, query, words):
    with refused(words):
        source_runs(RUN, SourceParams(**params), query)


@pytest.fixture
def ask(engine, near_workers, model_dirs, tmp_path_factory):
    """The answer to a question on the tiny GPT-2, and the mean keys and scales of its run."""
    folder = tmp_path_factory.getbasetemp()
    if not (folder / "mini.txt").exists():
        builders.mini_corpus(folder)

    def answer(analysis="kernel", **params):
        run = describe_run(
            str(model_dirs["gpt2"]), corpus=CorpusSpec(name=str(folder / "mini.txt")),
            context=CONTEXT, windows=7, query=11,
        )  # fmt: skip
        asked = Request(analysis=analysis, run=run, params=params)
        result = engine.result(asked, WAIT)
        view = StoredStatistics.open(engine.store, asked.run)
        means = [view.layer(layer)["mean_keys"] for layer in range(3)]
        return result, means, view.header.scales, run.corpus

    return answer


def ids_of(model_dirs, text):
    return [0, *load_tokenizer(catalog.locate(str(model_dirs["gpt2"]))).encode(text)]


@pytest.mark.parametrize("skip", [0, 4])
def test_source_text(ask, model_dirs, skip):
    text, n = "She sells sea shells on the sea shore; the shells are sea shells.", 11
    result, means, scales, _ = ask(source="text", text=text, query=n, skip=skip)

    truth = truth_of(model_dirs["gpt2"], np.array([ids_of(model_dirs, text)[:CONTEXT]]))
    for layer, head in np.ndindex(3, 5):
        q, keys = truth.queries[layer][0, head, n].tolist(), means[layer][head].tolist()
        expected = oracles.kernel_row(q, keys, scales[layer], n, skip)
        np.testing.assert_allclose(result.values["kernel"][layer, head], expected, atol=1e-5)
        seen = np.where(np.arange(n + 1) < skip, 0, truth.attentions[layer][0, head, n, : n + 1])
        found = result.values["observed"][layer, head, : n + 1]
        np.testing.assert_allclose(found, seen / seen.sum(), atol=1e-5)
    assert np.isnan(result.values["query_variation"]).all()


def test_source_text_map(ask, model_dirs):
    text = "She sells sea shells."
    result, means, scales, _ = ask("kernel-map", source="text", text=text, head="L1H3", skip=0)

    ids = ids_of(model_dirs, text)
    truth = truth_of(model_dirs["gpt2"], np.array([ids]))
    assert list(range(len(ids))) == result.coordinates["query"].tolist()
    assert "".join(result.words("tokens")[1:]) == text
    for n in range(len(ids)):
        q = truth.queries[1][0, 3, n].tolist()
        expected = oracles.kernel_row(q, means[1][3].tolist(), scales[1], n, 0)
        found = result.values["kernel"][n, : n + 1]
        np.testing.assert_allclose(found, expected[: n + 1], atol=1e-5)


@pytest.mark.parametrize("n", [0, 11])
def test_source_token(ask, model_dirs, n):
    result, means, scales, corpus = ask(source="token", token=" the", query=n, skip=0)

    tokenizer = load_tokenizer(catalog.locate(str(model_dirs["gpt2"])))
    windows = corpora.token_windows(
        corpus, tokenizer, context=n + 1, windows=7, start_token=n > 0
    ).tokens
    windows[:, -1] = tokenizer.single_id(" the")
    truth = truth_of(model_dirs["gpt2"], windows)
    for layer, head in np.ndindex(3, 5):
        queries = truth.queries[layer][:, head, n].tolist()
        expected = oracles.mean_kernel(queries, means[layer][head].tolist(), scales[layer], n, 0)
        np.testing.assert_allclose(result.values["kernel"][layer, head], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"source": "token", "token": "sea shells"}, "one token"),
        ({"source": "text", "text": "She"}, "No query at position"),
        ({"source": "text", "text_item": "Genesis 99"}, "Genesis 99"),
    ],
)
def test_bad_sources(ask, params, words):
    with refused(words):
        ask(query=11, **params)
