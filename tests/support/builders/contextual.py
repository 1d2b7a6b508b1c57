"""A model whose keys are a known sum of position and content; asking models.

One has random weights, and heads that share keys in a sliding window.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import MistralConfig

import poskernel_core as pk
from poskernel_core import Store
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.data import corpora
from poskernel_core.data.layouts import TokenPool
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.worker_context import WorkerContext
from tests.support.builders.made import START, VOCABULARY, build, gpt2_config, rotary_sizes, save
from tests.support.builders.positions import blank_gpt2, of_length_one, undo_norm
from tests.support.builders.truth import random_ids
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.stages import carried_out

T, TAU = 31, 3.0
CONTENT = [2 * ((37 * token) % VOCABULARY) / VOCABULARY - 1 for token in range(VOCABULARY)]
# model, query, skip, start token, and the windows and divisors of scores by layer
CASES = {
    "learned": ("gpt2", 19, 4, True, [None] * 3, [7**0.5] * 3),
    "two keys": ("gpt2", 1, 0, False, [None] * 3, [7**0.5] * 3),
    "no start": ("gpt2_inverse_layer", 13, 0, False, [None] * 3, [7**0.5 * n for n in (1, 2, 3)]),
    "skip in window": ("gpt_neo", 7, 5, True, [None, 5, None], [1] * 3),
    "grouped in window": ("grouped", 11, 0, False, [5] * 3, [10**0.5] * 3),
}

HEAD_WIDTH, HEADS = 5, 3


def additive(path: Path, content: Sequence[float], T: int = T, tau: float = TAU) -> Path:
    """A GPT-2 of one layer without training whose keys are position plus content, exactly.

    Whatever the query's token and position `n`, up to a number that does not depend on `i`:

    - head 0: `s(n, i) = content[token_i]`: a uniform kernel;
    - head 1: `s(n, i) = i / tau + content[token_i]`: a kernel proportional to `exp(i / tau)`;
    - head 2: `s(n, i) = i / tau`, without content.

    Queries are biases. Tokens and positions stand in dimensions of their own, each as one number,
    what it lacks to the length 1, and both with the other sign; so all sums of the two have mean 0
    and one length, and the norm's weight undoes it.
    """
    config = gpt2_config(T, n_embd=HEADS * HEAD_WIDTH, n_head=HEADS, n_layer=1, n_inner=1)
    model = blank_gpt2(config)
    body, width = model.transformer, HEADS * HEAD_WIDTH
    most = max(abs(score) for score in content)
    with torch.no_grad():
        body.wte.weight[:, 0:4] = of_length_one(torch.tensor(content).double()[:, None] / most)
        body.wpe.weight[:, 4:8] = of_length_one(torch.arange(T).double()[:, None] / T)
        undo_norm(body.h[0].ln_1, body.wte.weight[0] + body.wpe.weight[0])
        weight, bias = body.h[0].attn.c_attn.weight, body.h[0].attn.c_attn.bias
        for head, (reads_content, reads_position) in enumerate([(1, 0), (1, 1), (0, 1)]):
            slot = head * HEAD_WIDTH
            bias[slot : slot + 2] = math.sqrt(HEAD_WIDTH)
            weight[0, width + slot] = most * reads_content
            weight[4, width + slot + 1] = T / tau * reads_position
    return save(model, path, T)


def grouped(path: Path) -> Path:
    """Mistral with random weights: 6 query heads share 2 keys, a window of 5; context 47."""
    sizes = rotary_sizes(context=47, heads=6, key_heads=2, head_width=10)
    return build(path, MistralConfig(**sizes, hidden_size=60, sliding_window=5), seed=41)


def study(path, windows, start=True, batch=None, load=loaded):
    """What an experiment works on, and the mean keys of the same windows, as many as are equal.

    Stretches are put in order so that window `w` of the pass is of group `w % groups`.
    """
    groups = min(10, len(windows))
    windows = windows[: len(windows) // groups * groups]
    ordered = np.concatenate([windows[group::groups] for group in range(groups)])
    tokenizer, model = load_tokenizer(catalog.locate(str(path))), load(path)
    source = TokenPool(np.arange(1, VOCABULARY), START, 3)
    main = pk.run_pass(model, ordered, start_token=start, gather=("keys",))
    subject = ExperimentContext(
        model=model,
        windows=windows,
        words=[],
        decode=tokenizer.decode_each,
        start_token=start,
        source=source,
        batch=batch,
        single_id=tokenizer.single_id,
        encode=tokenizer.encode,
        statistics={"main": main},
    )
    return subject, main


def some_windows(texts, length, start=True, seed=5):
    windows = random_ids(texts, length, seed).numpy()
    windows[:, : int(start)] = START
    return windows


def perform(experiment, subject, main, **params):
    checked = experiment.params(**params)
    return of_all_texts(
        experiment().perform(subject, {"main": main}, checked, lambda done, total: None)
    )


def ask(folder, name, path, params, corpus="random", batch=None, **run):
    """The result of a question that is carried out by way of the store."""
    made = corpus in ("random", "repeated")
    texts = {} if made else {"corpus": CorpusSpec(name=str(corpus))}
    spec = describe_run(str(path), **texts, **run)
    if made:
        spec = spec.model_copy(update={"corpus": corpora.resolve(CorpusSpec(name=corpus))})
    plan = make_plan(Request(analysis=name, run=spec, params=params))
    return carried_out(WorkerContext(Store(folder)), plan, batch)


def with_token(windows, query, token):
    """Windows that hold the token at the query."""
    changed = windows.copy()
    changed[:, query] = token
    return changed
