"""Run long texts, and their ends alone, with the model's own and with scaled angles."""

from itertools import product

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.dilution import formulas, longer
from poskernel_core.analyses.kernels.formulas import total_variation
from poskernel_core.analyses.replicates import GAP
from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, NotInModel, UnsupportedModel
from poskernel_core.common.groups import GROUPS, kept_windows
from poskernel_core.common.jackknife import signs
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.readout import losses
from poskernel_core.forward.scaled_rotation import ScaledRotation, Scaling
from poskernel_core.statistics.moments import Numbers, means_of

SHOWN = 64
"""Offsets at which kernels are kept, more of them near."""


TABLED = ("gptj",)
"""Architectures whose angles come from a table that ends at the trained length."""


class _Seen(Observer):
    """Keeps queries and sums keys at the end of every text.

    ``queries [head, text, query, d]`` and ``keys [group, kv, key, d]``, each by layer.
    """

    def __init__(self, ends: formulas.Ends) -> None:
        self.queries: dict[int, list[Tensor]] = {}
        self.keys: dict[int, Tensor] = {}
        self.rules: dict[int, ScoreRule] = {}
        self.ends, self.length = ends, 0

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        self.length, self.rules[call.layer] = call.q.shape[2], call.rule
        at = self.length - 1 - self.ends.back
        queries = call.q[0][:, torch.from_numpy(at.copy()).to(call.q.device)]
        self.queries.setdefault(call.layer, []).append(queries.float().cpu())
        keys = call.k[0, :, -self.ends.span :].float().cpu()
        if call.layer not in self.keys:
            self.keys[call.layer] = torch.zeros(GROUPS, *keys.shape, device="cpu")
        self.keys[call.layer][batch.samples.start % GROUPS] += keys

    def kernels(self, kept: np.ndarray) -> np.ndarray:
        """Return the kernels ``[layer, head, offset]`` of the texts that are kept."""
        ends, layer_kernels = self.ends, []
        first, at = self.length - ends.span, self.length - 1 - ends.back
        for layer, rule in sorted(self.rules.items()):
            means = self.keys[layer].numpy()[: len(kept)][kept[:GROUPS]].sum(axis=0) / kept.sum()
            queries = torch.stack(self.queries[layer], dim=1).numpy()[:, kept]
            layer_kernels.append(
                formulas.offset_kernel(queries, means, at, first, ends.offsets, rule)
            )
        return np.stack(layer_kernels)


def longer_contexts(subject: ExperimentContext, params: longer.LongerContextsParams) -> Result:
    """Run every text in every context; see :class:`longer.LongerContexts`."""
    start = int(subject.start_token)
    texts = formulas.long_texts(subject.windows, start, longer.FACTORS[-1])
    length = subject.windows.shape[1]
    longest, left_out = (texts.shape[1] - start) // (length - start), list[str]()
    if longest < longer.FACTORS[1]:
        raise BadRequest(
            f"Expected {GROUPS} texts of {longer.FACTORS[1] * length} tokens or more: choose more "
            "text, or a smaller length."
        )
    if longest < longer.FACTORS[-1]:
        left_out.append(f"{longer.FACTORS[-1]} times the length: too little text")
    geometry = subject.model.geometry
    if geometry.architecture in TABLED and longest * length > geometry.n_ctx:
        raise BadRequest(
            f"The model reads its angles from a table of {geometry.n_ctx} positions: choose a "
            f"length of {geometry.n_ctx // longest} or less."
        )
    scalings = _scalings(subject, texts[:1, :length], left_out)
    factors = [factor for factor in longer.FACTORS if factor <= longest]
    ends = formulas.ends_of(length, params.skip)
    done, total = 0, (1 + len(scalings) * (len(factors) - 1)) * len(texts)
    kernels: dict[tuple[str, int], list[np.ndarray]] = {}
    loss: dict[tuple[str, int], np.ndarray] = {}
    for scaling, factor in product(scalings, factors):
        if factor == 1 and scaling != "own":
            kernels[scaling, 1], loss[scaling, 1] = kernels["own", 1], loss["own", 1]
            continue
        edit, seen, rows = ScaledRotation(scaling, factor, length), _Seen(ends), []
        for number, text in enumerate(texts):
            subject.progress(done, total)
            end = torch.from_numpy(np.append(text[:start], text[-factor * (length - start) :]))
            logits = subject.model.run(end[None], edit, [seen], samples=range(number, number + 1))
            rows.append(np.append(np.nan, losses(logits[0], end).cpu().numpy())[start:])
            done += 1
        loss[scaling, factor] = np.array(rows)
        kernels[scaling, factor] = [*map(seen.kernels, kept_windows(len(texts), GROUPS))]
    params = params.model_copy(update={"length": length})
    return _result(subject, params, ends, (scalings, factors), left_out, kernels, loss)


def _scalings(subject: ExperimentContext, text: Tokens, left_out: list[str]) -> list[Scaling]:
    scalings: list[Scaling] = ["own"]
    scaled: tuple[Scaling, ...] = ("linear", "YaRN")
    for scaling in scaled if subject.model.geometry.scheme == "rotary" else ():
        try:
            edit = ScaledRotation(scaling, longer.FACTORS[1], text.shape[1])
            subject.model.run(torch.from_numpy(text), edit, until=0)
            scalings.append(scaling)
        except (NotInModel, UnsupportedModel) as error:
            left_out.append(f"{scaling}: {error}")
    return scalings


def _result(
    subject: ExperimentContext,
    params: longer.LongerContextsParams,
    ends: formulas.Ends,
    runs: tuple[list[Scaling], list[int]],
    left_out: list[str],
    kernels: dict[tuple[str, int], list[np.ndarray]],
    loss: dict[tuple[str, int], np.ndarray],
) -> Result:
    scalings, factors = runs
    start, tail = int(subject.start_token), int(ends.back[0]) + 1
    drawn = np.unique(np.geomspace(1, ends.offsets, SHOWN).round().astype(np.int64)) - 1

    def numbers(out: int) -> Numbers:
        by_scaling = [np.stack([kernels[one, f][out] for f in factors], axis=2) for one in scalings]
        kernel = np.stack(by_scaling, axis=2)  # [layer, head, scaling, factor, offset]
        first = np.broadcast_to(kernel[:, :, :1, :1], kernel.shape)
        distance, gap = total_variation(kernel, first), kernel - first
        kept = signs(gap) if out else gap
        return {
            "distance": distance,
            "longest_distance": distance[:, :, 0, -1],
            f"distance{GAP}": kept,
            f"longest_distance{GAP}": kept[:, :, 0, -1],
            "kernel": kernel[..., drawn],
        }

    texts, body = loss["own", 1].shape
    parts = np.full((texts, len(scalings), len(factors), longer.PARTS * factors[-1]), np.nan)
    change = np.empty((texts, len(scalings), len(factors)))
    plain = loss["own", 1][:, -tail:].mean(axis=1)
    for (i, scaling), (j, factor) in product(enumerate(scalings), enumerate(factors)):
        parts[:, i, j, : longer.PARTS * factor] = formulas.in_parts(
            loss[scaling, factor], factor, longer.PARTS
        )
        change[:, i, j] = loss[scaling, factor][:, -tail:].mean(axis=1) - plain
    losses_kept = means_of({"loss": parts, "loss_change": change})
    sizes = [len(part) for part in np.array_split(np.arange(body), longer.PARTS)] * factors[-1]
    trained = subject.model.geometry.n_ctx
    return longer.LongerContexts.estimated(
        subject,
        params,
        (numbers(out) | one for out, one in enumerate(losses_kept)),
        coordinates={
            "factor": np.array(factors),
            "offset": drawn,
            "position": start - 1 + np.cumsum(sizes),
        },
        texts={"scaling": list(scalings)},
        provenance={"texts": texts, "trained_length": trained, "left_out": left_out},
    )
