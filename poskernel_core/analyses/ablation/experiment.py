"""Run windows of text and repeated random tokens, clean and with heads ablated."""

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.ablation.spec import AblateHeads, AblateHeadsParams
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.induction.experiment import copy_losses, diagonals
from poskernel_core.analyses.kernel_only import experiment as kernel_only
from poskernel_core.analyses.kernel_only.formulas import KERNEL, MEAN_OUTPUT
from poskernel_core.analyses.random_tokens.experiment import sampled
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import twice_layout
from poskernel_core.data.moves import parse_cells
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import AblatedHeads, FixedHeads
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.readout import losses

PERIOD = 24
"""Random tokens that are repeated, or as many as fit."""


def ablate_heads(subject: ExperimentContext, params: AblateHeadsParams) -> Result:
    """Run texts and random tokens clean and ablated; see :class:`AblateHeads`."""
    geometry, start = subject.model.geometry, int(subject.start_token)
    cells = parse_cells(params.heads, geometry.n_layers, geometry.n_heads)
    kernel_only.check_heads(geometry, cells)
    texts = kernel_only.divided(subject, params)
    given = params.by in ("mean", "kernel")
    fixed = (
        kernel_only.fixed_of(subject, texts.kernels, params.skip) if given else kernel_only.Fixed()
    )
    total, others = len(texts.loss) + params.samples, np.roll(texts.loss, 1, axis=0)
    clean, changed = (np.full(texts.loss.shape, np.nan) for _ in range(2))
    for some, tokens in subject.batches(texts.loss, kernel_only.BATCH, 0, total):
        at = slice(some.start, some.stop)
        edit = _edit(subject, params, cells, fixed, torch.from_numpy(others[at]))
        for array, applied_edit in ((clean, Edit()), (changed, edit)):
            array[at, 1:] = losses(subject.model.run(tokens, applied_edit), tokens).cpu().numpy()
    period = max(1, min(PERIOD, (texts.loss.shape[1] - start) // 2))
    layout, scores, copies = twice_layout(period, bool(start)), [], []
    again = sampled.batches(subject, layout, params.samples, 1, logits=len(layout.places))
    for (some, tokens), (_, other) in zip(
        sampled.batches(subject, layout, params.samples, 0, logits=len(layout.places)), again,
        strict=True,
    ):  # fmt: skip
        subject.progress(len(texts.loss) + some.start, total)
        for applied_edit in (Edit(), _edit(subject, params, cells, fixed, other)):
            seen = _Induction(geometry.n_layers, geometry.n_heads, len(tokens), start, period)
            logits = subject.model.run(tokens, applied_edit, [seen], samples=some).cpu()
            scores.append(seen.score)
            copies.append(copy_losses(logits, tokens, start, period).numpy())
    induction, copied = (
        [np.concatenate(arrays[run::2]) for run in (0, 1)] for arrays in (scores, copies)
    )
    samples = {
        "induction": induction[0],
        "induction_change": induction[1] - induction[0],
        "copy_loss_change": copied[1] - copied[0],
    }

    def numbers(means: kernel_only.Means) -> kernel_only.Means:
        rise, loss = means["position_loss_change"], means["clean_position_loss"]
        return {"loss_change": np.array(rise[1:].mean()), "clean_loss": np.array(loss[1:].mean())}

    return kernel_only.answer(
        AblateHeads, subject, params, texts,
        {"position_loss_change": changed - clean, "clean_position_loss": clean}, numbers,
        {name: sample.mean(axis=0) for name, sample in samples.items()},
        {name: sample.std(axis=0, ddof=1) / len(sample) ** 0.5 for name, sample in samples.items()},
        coordinates={"copy": np.array([1, 2])},
    )  # fmt: skip


def _edit(
    subject: ExperimentContext,
    params: AblateHeadsParams,
    cells: list[kernel_only.Cell],
    fixed: kernel_only.Fixed,
    others: Tensor,
) -> Edit:
    """Return the edit for one batch; ``others [text, pos]`` are run clean for their outputs."""
    if params.by == "zero":
        return AblatedHeads(cells)
    if params.by != "resample":
        return fixed.edit(KERNEL if params.by == "kernel" else MEAN_OUTPUT, cells)
    clean = kernel_only.Outputs()
    subject.model.run(others, clean, until=cells[-1][0])
    return FixedHeads(outputs={cell: clean.outputs[cell[0]][:, cell[1]] for cell in cells})


class _Induction(Observer):
    """The induction score of every head in each sequence, ``[text, layer, head]``."""

    wants_patterns = True

    def __init__(self, layers: int, heads: int, texts: int, first: int, period: int) -> None:
        self.score = np.full((texts, layers, heads), np.nan)
        self._at = first, period

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self.score[:, block.layer] = diagonals(block, *self._at)["induction"].numpy()
