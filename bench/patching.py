"""``python -m bench.patching``: effects of heads over a set of pairs, beside what they need.

A random Llama reads pairs of random prompts. Its floor for estimates is two forward passes and one
backward pass of plain transformers for each batch; for exact effects, one bare run from the head's
layer up for each head and pair, in batches as large as ours.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import replace
from unittest import mock

import numpy as np
import torch

from bench.measure import now
from bench.shapes import hooked, llama
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.patching import experiment
from poskernel_core.analyses.patching.spec import PatchHeadsParams

AIMS = {"estimates": 2.0, "exact effects": 1.5}
MOST = 40_000
"""Token ids are drawn below this."""


def ours(subject: ExperimentContext, pairs: str) -> dict[str, float]:
    """Return the seconds of both parts of the experiment."""
    marks: list[float] = []
    watched = replace(subject, progress=lambda done, total: marks.append(now()))
    with mock.patch.object(experiment, "LEAST", -math.inf):  # random models prefer nothing
        experiment.patch_heads(watched, PatchHeadsParams(pairs=pairs, exact="all"))
    half = len(marks) // 2  # as many batches in each part
    begin, middle = marks[0], marks[half]
    return {"estimates": middle - begin, "exact effects": now() - middle}


def floors(subject: ExperimentContext, prompts: torch.Tensor) -> dict[str, float]:
    """Return the least seconds of both parts, for prompts ``[clean or changed, pair, pos]``.

    Bare runs begin with a random stream.
    """
    model, length = subject.model, prompts.shape[-1]
    began = now()
    size = experiment.texts_per_run(subject, 2 * length)
    for clean, changed in zip(prompts[0].split(size), prompts[1].split(size), strict=True):
        rows = model.module.get_input_embeddings()(clean).detach().requires_grad_()
        logits = model.module(inputs_embeds=rows, use_cache=False, logits_to_keep=1).logits
        model.module(changed, use_cache=False, logits_to_keep=1)
        torch.autograd.grad(logits[:, -1, 0].sum(), rows)
    middle = now()
    texts = prompts[0].repeat(model.geometry.n_heads, 1)
    stream = torch.randn(*texts.shape, model.module.config.hidden_size)
    for layer in model.geometry.with_heads:
        size = experiment.texts_per_run(subject, length)
        for some, x in zip(texts.split(size), stream.split(size), strict=True):
            model.run(some, keep=1, stream=(layer, x))
    return {"estimates": middle - began, "exact effects": now() - middle}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.patching", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    model = hooked(llama(options.layers), torch.device("cpu"))
    ids = np.random.default_rng(0).integers(0, MOST, (options.pairs, 2, 31))
    names = "clean", "changed", "answer", "other_answer"
    texts = [[" ".join(map(str, prompt)) for prompt in pair] for pair in ids]
    rows = [dict(zip(names, (*pair, "3", "5"), strict=True)) for pair in texts]
    subject = ExperimentContext(
        model, np.zeros((1, 1), np.int64), [], lambda ids: [*map(str, ids)], True,
        single_id=int, encode=lambda text: [int(each) for each in text.split()],
    )  # fmt: skip
    table = "\n".join(map(json.dumps, rows))
    prompts = torch.from_numpy(np.pad(ids.transpose(1, 0, 2), ((0, 0), (0, 0), (1, 0))))
    rounds = [(ours(subject, table), floors(subject, prompts)) for _ in range(options.rounds)]
    print(f"{options.pairs} pairs of 32 tokens, {model.geometry.n_heads * options.layers} heads, "
          f"{torch.get_num_threads()} threads, median of {options.rounds}\n\n"
          "| | seconds | floor | ratio | at most |\n|---|---:|---:|---:|---:|")  # fmt: skip
    for name, aim in AIMS.items():
        seconds, floor = (statistics.median(each[at][name] for each in rounds) for at in (0, 1))
        ratio = statistics.median(each[name] / least[name] for each, least in rounds)
        print(f"| {name} | {seconds:.2f} | {floor:.2f} | {ratio:.2f} | {aim:.1f} |")


if __name__ == "__main__":
    main()
