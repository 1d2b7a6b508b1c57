"""A statistic that reads the texts of the tokens, by a pass in a store and by plain loops."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.engine.engine import describe_run
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes import runner
from poskernel_core.passes.prepare import prepare
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS, Statistic
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store

MODEL = "demo-gpt2"


def is_mark(text):
    return bool(text.strip()) and not any(map(str.isalnum, text))


@pytest.fixture
def punctuation():
    """A statistic of this test alone: the attention to punctuation, summed over all queries."""

    class Punctuation(Statistic):
        name, means = "punctuation-of-a-test", {"mass_sum": "mass"}
        wants_patterns = wants_texts = True

        def allocate(self):
            return {"mass_sum": self.zeros(self.sizes.geometry.n_heads)}

        def pattern(self, block, batch):
            known = torch.tensor([*map(is_mark, self.sizes.texts)])
            keys = batch.tokens[:, block.first_key : block.first_key + block.pattern.shape[-1]]
            found = torch.einsum("thnk,tk->h", block.pattern.double(), known[keys].double())
            self.add("mass_sum", block.layer, found)

    yield Punctuation.name
    del STATISTICS[Punctuation.name]


def test_a_statistic_that_reads_them(punctuation, tmp_path):
    located, execution = locate(MODEL), Execution()
    run = describe_run(
        MODEL, corpus=CorpusSpec(name="sample"), context=19, windows=20, gather=(punctuation,)
    )
    store = Store(tmp_path)
    runner.gather_run(WorkerContext(store), run, execution, {}, lambda *_: None)
    view = StoredStatistics.open(store, run)
    found = [view.layer(layer)["mass"] for layer in range(located.geometry.n_layers)]
    store.close()

    tokenizer = load_tokenizer(located)
    plain = AutoModelForCausalLM.from_pretrained(located.directory, attn_implementation="eager")
    windows, sizes = prepare(run, execution, located, tokenizer)
    start = tokenizer.known_start()
    assert "" == sizes.texts[start]
    texts = tokenizer.decode_each(windows.ravel().tolist())
    marks = np.array([*map(is_mark, texts)]).reshape(windows.shape) & (windows != start)
    with torch.no_grad():
        patterns = plain(torch.from_numpy(windows), output_attentions=True).attentions
    for mass, layer in zip(found, patterns, strict=True):
        expected = [0.0] * layer.shape[1]
        for text, head, n, i in np.ndindex(*layer.shape):
            expected[head] += float(layer[text, head, n, i]) * marks[text, i] / len(windows)
        np.testing.assert_allclose(mass, expected, rtol=1e-5)
