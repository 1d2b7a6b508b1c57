"""What the tokenizer knows of token ids: by hand, and in a statistic that is cut into shards."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from poskernel_core.api import run_pass
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.shards import Shard
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward.loading import load
from poskernel_core.models.catalog import locate
from poskernel_core.models.token_table import token_table
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes import runner
from poskernel_core.passes.merging import merge_shards
from poskernel_core.passes.prepare import prepare
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS, Statistic
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store

MODEL, CONTEXT, WINDOWS = "demo-gpt2", 19, 20


@pytest.fixture
def punctuation():
    """A statistic of this test alone: the attention to punctuation, summed over all queries."""

    class Punctuation(Statistic):
        name, means = "punctuation-of-a-test", {"mass_sum": "mass"}
        wants_patterns = wants_table = True

        def allocate(self):
            return {"mass_sum": self.zeros(self.sizes.geometry.n_heads)}

        def pattern(self, block, batch):
            known = torch.from_numpy(self.sizes.table.punctuation)
            keys = batch.tokens[:, block.first_key : block.first_key + block.pattern.shape[-1]]
            found = torch.einsum("thnk,tk->h", block.pattern.double(), known[keys].double())
            self.add("mass_sum", block.layer, found)

    yield Punctuation.name
    del STATISTICS[Punctuation.name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" the", ("begins_word",)),
        ("ing", ()),
        (",", ("punctuation",)),
        (" 1", ("begins_word", "number")),
        ("7", ("number",)),
        ("\n", ()),
        ("<|endoftext|>", ("special",)),
    ],
)
def test_properties_by_hand(text, expected):
    tokenizer = load_tokenizer(locate(MODEL))
    table = token_table(tokenizer, locate(MODEL).geometry.n_vocab)
    number = tokenizer.backend.token_to_id(text) if "<" in text else tokenizer.single_id(text)

    properties = ("begins_word", "punctuation", "number", "special")
    assert expected == tuple(name for name in properties if getattr(table, name)[number])


def test_a_statistic_that_reads_it_is_cut_into_shards(punctuation, tmp_path):
    """Three shards give the bits of one pass, and those of plain loops over whole patterns."""
    located = locate(MODEL)
    run = describe_run(
        MODEL, corpus=CorpusSpec(name="sample"), context=CONTEXT, windows=WINDOWS,
        gather=(punctuation,),
    )  # fmt: skip
    stores = [Store(tmp_path / name) for name in ("whole", "cut")]
    for store, of in zip(stores, (1, 3), strict=True):
        for number in range(of):
            shard = Shard(number=number, of=of)
            runner.gather_shard(WorkerContext(store), run, shard, Execution(), {}, lambda *_: None)
        merge_shards(store, {}, run, of, lambda *_: None)
    whole, cut = (
        np.stack([view.layer(layer)["mass"] for layer in range(located.geometry.n_layers)])
        for view in (StoredStatistics.open(store, run) for store in stores)
    )
    np.testing.assert_array_equal(whole, cut)

    tokenizer = load_tokenizer(located)
    plain = AutoModelForCausalLM.from_pretrained(located.directory, attn_implementation="eager")
    windows, _ = prepare(run, Execution(), located, tokenizer)
    texts = tokenizer.decode_each(windows.ravel().tolist())
    marks = [not any(map(str.isalnum, text)) and bool(text.strip()) for text in texts]
    marks = np.array(marks).reshape(windows.shape) & (windows != tokenizer.known_start())
    with torch.no_grad():
        patterns = plain(
            torch.from_numpy(windows.astype(np.int64)), output_attentions=True
        ).attentions
    expected = []
    for layer in (each.numpy().astype(float) for each in patterns):
        sums = [0.0] * layer.shape[1]
        for text, head, n, i in np.ndindex(layer.shape):
            sums[head] += layer[text, head, n, i] if marks[text, i] else 0.0
        expected.append([each / len(windows) for each in sums])
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    for store in stores:
        store.close()


def test_a_statistic_that_there_is_not():
    with pytest.raises(BadRequest, match=r"'paterns'.*patterns"):
        run_pass(load(locate(MODEL), "cpu"), np.ones((3, 5), dtype=int), gather=("paterns",))
