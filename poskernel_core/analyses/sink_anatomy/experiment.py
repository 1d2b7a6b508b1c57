"""Run texts behind two front tokens in every arrangement, and read the attention to the two."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.sink_anatomy.formulas import (
    Arrangement,
    arrangements_of,
    factors_of,
    numbers,
    together,
)
from poskernel_core.analyses.sink_anatomy.spec import (
    DISTANCES,
    FRONT,
    SinkAnatomy,
    SinkAnatomyParams,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import groups_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief
from poskernel_core.forward.attention import AttentionCall, masked_scores, softmax_with_sinks
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Numbers


class _Front(Observer):
    """Keeps the mean attention of a text's queries to the two front keys, by layer.

    ``seen`` holds ``[row, head, front]``. After the rows of the batch come the first two once more,
    each with the first key of the other.
    """

    def __init__(self) -> None:
        self.seen: dict[int, Tensor] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        crossed = call.k[:2].clone()
        crossed[:, :, 0] = call.k[[1, 0], :, 0]
        q, k = torch.cat([call.q, call.q[:2]]), torch.cat([call.k, crossed])
        pattern = softmax_with_sinks(masked_scores(replace(call, q=q, k=k)), call.sinks)
        self.seen[call.layer] = pattern[:, :, FRONT:, :FRONT].double().mean(dim=2).cpu()


def sink_anatomy(
    subject: ExperimentContext,
    statistics: Statistics,
    params: SinkAnatomyParams,
    progress: Progress,
) -> Result:
    """Run the texts; see :class:`~poskernel_core.analyses.sink_anatomy.spec.SinkAnatomy`.

    Raises:
        BadRequest: there is no start token, or too little text.
    """
    geometry, start = subject.model.geometry, _start_of(subject)
    first, length = int(subject.start_token), FRONT + params.length
    texts = subject.windows[:, first : first + length]
    if texts.shape[1] < length or len(texts) < 2:
        raise BadRequest(f"Expected two texts of {length} tokens or more: choose more text.")
    arrangements, factors = arrangements_of(geometry.scheme), factors_of(geometry.scheme)
    far = [d for d in DISTANCES if geometry.scheme == "rotary" and length + d <= geometry.n_ctx]
    positions = _positions(arrangements, far, length)
    seen = np.zeros((len(texts), geometry.n_layers, geometry.n_heads, len(positions) + 2, FRONT))
    for number, text in enumerate(texts):
        progress(number, len(texts))
        front = _Front()
        subject.model.run(
            torch.from_numpy(_tokens(text, start, arrangements, len(far))),
            observers=[front],
            samples=range(number, number + 1),
            # ids that stand still or go back, without a mask, would hide the target
            positions=torch.from_numpy(positions) if geometry.scheme in PLACED else None,
            until=-1,
        )
        for layer, rows in front.seen.items():
            seen[number, layer] = rows.movedim(0, 1).numpy()
    group = np.arange(len(texts)) % groups_of(len(texts))
    whole = numbers(seen.mean(axis=0), arrangements, factors)
    none = ~(whole["sink"] >= params.threshold)
    return SinkAnatomy.estimated(
        subject,
        params,
        _only_sinks(whole, none),
        [
            numbers(seen[group != left].mean(axis=0), arrangements, factors)
            for left in range(group.max() + 1)
        ],
        coordinates={"distance": np.array([0, *far])},
        texts={
            "arrangements": [str(each) for each in arrangements],
            "factors": together(factors),
            "reason": _reasons(whole["sink"], params.threshold),
        },
        provenance={"texts": len(texts)},
    )


PLACED = ("learned", "rotary")
"""The schemes of positions whose models take position ids."""


def _start_of(subject: ExperimentContext) -> int:
    """Return the id of the start token: that of the windows, or else the tokenizer's.

    Raises:
        BadRequest: there is neither.
    """
    if subject.start_token:
        return int(subject.windows[0, 0])
    if subject.source is None or subject.source.start is None:
        raise BadRequest(
            "The model has no start token, so it cannot be held against other first tokens: "
            "choose a model whose tokenizer has one."
        )
    return subject.source.start


def _positions(arrangements: list[Arrangement], far: list[int], length: int) -> np.ndarray:
    """Return the position ids ``[row, pos]``: the first alone is moved back, by making room."""
    ids = np.tile(np.arange(length), (len(arrangements) + len(far), 1))
    ids[: len(arrangements), :FRONT] = [each.ids for each in arrangements]
    ids[len(arrangements) :, 1:] += np.array(far, int)[:, None]
    return ids


def _tokens(text: np.ndarray, start: int, arrangements: list[Arrangement], far: int) -> np.ndarray:
    """Return the token ids ``[row, pos]``; a text's first two are ordinary target and filler."""
    rows = np.tile(text, (len(arrangements) + far, 1))
    for row, each in zip(rows, arrangements, strict=False):
        target = start if each.start_token else text[0]
        row[each.place], row[1 - each.place] = target, text[1]
    rows[len(arrangements) :, 0] = start
    return rows


def _only_sinks(found: Numbers, none: np.ndarray) -> Numbers:
    """Blank out the heads without a sink, in all values but the sink itself."""
    kept = {name: value.copy() for name, value in found.items()}
    for name in kept.keys() - {"sink"}:
        kept[name][none] = np.nan
    return kept


def _reasons(sink: np.ndarray, threshold: float) -> list[list[str]]:
    """Return why each head has no numbers; empty for those with a sink."""
    return [
        [
            ""
            if value >= threshold
            else f"no sink: the first key gets {brief(value)}, less than {threshold:g}"
            for value in row
        ]
        for row in sink
    ]
