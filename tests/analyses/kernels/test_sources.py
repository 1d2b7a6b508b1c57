"""Where a kernel's queries come from: one text's own, or one fixed token, through the engine."""

import numpy as np
import pytest

from poskernel_core.data import corpora
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.storage.statistics import StoredStatistics
from tests.engine.test_engine import CONTEXT, WAIT, engine, place, request
from tests.support import oracles
from tests.support.refusals import refused
from tests.support.truth import truth_of

__all__ = ["engine", "place"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("near_worker")]


def ids_of(model_dirs, text):
    return [0, *load_tokenizer(catalog.locate(str(model_dirs["gpt2"]))).encode(text)]


def means_of(engine, asked):
    """The mean keys and scales of a request's own run."""
    view = StoredStatistics.open(engine.store, asked.run)
    layers = range(view.header.n_layers)
    return [view.layer(layer)["mean_keys"] for layer in layers], view.header.scales


@pytest.mark.parametrize("skip", [0, 4])
def test_source_text(engine, place, model_dirs, skip):
    text, n = "She sells sea shells on the sea shore; the shells are sea shells.", 11
    engine.result(request(place, model_dirs), WAIT)
    asked = request(place, model_dirs, "kernel", source="text", text=text, query=n, skip=skip)

    result = engine.result(asked, WAIT)

    truth = truth_of(model_dirs["gpt2"], np.array([ids_of(model_dirs, text)[:CONTEXT]]))
    means, scales = means_of(engine, asked)
    for layer, head in np.ndindex(3, 5):
        q, keys = truth.queries[layer][0, head, n].tolist(), means[layer][head].tolist()
        expected = oracles.kernel_row(q, keys, scales[layer], n, skip)
        np.testing.assert_allclose(result.values["kernel"][layer, head], expected, atol=1e-5)
        seen = np.where(np.arange(n + 1) < skip, 0, truth.attentions[layer][0, head, n, : n + 1])
        found = result.values["observed"][layer, head, : n + 1]
        np.testing.assert_allclose(found, seen / seen.sum(), atol=1e-5)
    assert np.isnan(result.values["query_variation"]).all()


def test_source_text_map(engine, place, model_dirs):
    text = "She sells sea shells."
    asked = request(place, model_dirs, "kernel-map", source="text", text=text, head="L1H3", skip=0)

    result = engine.result(asked, WAIT)

    ids = ids_of(model_dirs, text)
    truth = truth_of(model_dirs["gpt2"], np.array([ids]))
    means, scales = means_of(engine, asked)
    assert list(range(len(ids))) == result.coordinates["query"].tolist()
    assert "".join(result.words("tokens")[1:]) == text
    for n in range(len(ids)):
        q = truth.queries[1][0, 3, n].tolist()
        expected = oracles.kernel_row(q, means[1][3].tolist(), scales[1], n, 0)
        np.testing.assert_allclose(
            result.values["kernel"][n, : n + 1], expected[: n + 1], atol=1e-5
        )


@pytest.mark.parametrize("n", [0, 5, 11])
def test_source_token(engine, place, model_dirs, n):
    asked = request(place, model_dirs, "kernel", source="token", token=" the", query=n, skip=0)

    result = engine.result(asked, WAIT)

    tokenizer = load_tokenizer(catalog.locate(str(model_dirs["gpt2"])))
    windows = corpora.token_windows(
        asked.run.corpus, tokenizer, context=n + 1, windows=7, start_token=n > 0
    ).tokens
    windows[:, -1] = tokenizer.single_id(" the")
    truth = truth_of(model_dirs["gpt2"], windows)
    means, scales = means_of(engine, asked)
    for layer, head in np.ndindex(3, 5):
        queries = truth.queries[layer][:, head, n].tolist()
        expected = oracles.mean_kernel(queries, means[layer][head].tolist(), scales[layer], n, 0)
        np.testing.assert_allclose(result.values["kernel"][layer, head], expected, atol=1e-5)


BAD = {
    "two tokens": ({"source": "token", "token": "sea shells"}, "one token"),
    "text too short": ({"source": "text", "text": "She", "query": 11}, "No query at position"),
    "no text": ({"source": "text"}, "Expected a text"),
    "no such chapter": ({"source": "text", "text_item": "Genesis 99"}, "Genesis 99"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sources(engine, place, model_dirs, case):
    params, words = BAD[case]
    with refused(words):
        engine.result(request(place, model_dirs, "kernel", **{"query": 11, **params}), WAIT)
