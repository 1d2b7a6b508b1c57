"""Run texts behind two front tokens in every arrangement, and read the attention to the two."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.sink_anatomy import formulas, spec
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import AttentionCall, masked_scores, softmax_with_sinks
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Groups, replicated

NO_SINK = "no sink: the first key gets less than {:g}"


class _Front(Observer):
    """Keeps the mean attention of a text's queries to the front keys, ``[row, head, front]``.

    After the rows of the batch come the first two once more, each with the first key of the other.
    """

    def __init__(self) -> None:
        self.seen: dict[int, Tensor] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        crossed = call.k[:2].clone()
        crossed[:, :, 0] = call.k[[1, 0], :, 0]
        call = replace(call, q=torch.cat([call.q, call.q[:2]]), k=torch.cat([call.k, crossed]))
        pattern = softmax_with_sinks(masked_scores(call), call.sinks)
        self.seen[call.layer] = pattern[:, :, spec.FRONT :, : spec.FRONT].double().mean(dim=2).cpu()


def sink_anatomy(subject: ExperimentContext, params: spec.SinkAnatomyParams) -> Result:
    """Run the texts; see :class:`~poskernel_core.analyses.sink_anatomy.spec.SinkAnatomy`."""
    geometry, start = subject.model.geometry, _start_of(subject)
    first, length = int(subject.start_token), spec.FRONT + params.length
    texts = subject.windows[:, first : first + length]
    if texts.shape[1] < length or len(texts) < 2:
        raise BadRequest(f"Expected two texts of {length} tokens or more: choose more text.")
    arrangements = formulas.arrangements_of(geometry.scheme)
    far = [
        d for d in spec.DISTANCES if geometry.scheme == "rotary" and length + d <= geometry.n_ctx
    ]
    ids = None
    if geometry.scheme in ("learned", "rotary"):
        ids = torch.from_numpy(_position_ids(arrangements, far, length))
    seen = Groups()
    for some, (text,) in subject.batches(texts):
        rows = _tokens(text.numpy(), start, arrangements, len(far))
        front, tokens = _Front(), torch.from_numpy(rows)
        # given ids come with a mask of ones, without which transformers would hide the target
        subject.model.run(tokens, observers=[front], samples=some, positions=ids, until=-1)
        layers = [front.seen[layer] for layer in range(geometry.n_layers)]
        seen.add(torch.stack(layers).transpose(1, 2)[None], some)
    full, *without = replicated(lambda mean: formulas.numbers(mean, arrangements), seen)
    none = full["sink"] < params.threshold
    for name in full.keys() - {"sink"}:
        full[name] = full[name].copy()
        full[name][none] = np.nan
    return spec.SinkAnatomy.estimated(
        subject,
        params,
        [full, *without],
        coordinates={"distance": np.array([0, *far])},
        texts={
            "arrangements": [str(arrangement) for arrangement in arrangements],
            "factors": formulas.interactions(arrangements),
            "reason": np.where(none, NO_SINK.format(params.threshold), "").tolist(),
        },
        provenance={"texts": len(texts)},
    )


def _start_of(subject: ExperimentContext) -> int:
    if subject.start_token:
        return int(subject.windows[0, 0])
    if subject.source is None or subject.source.start is None:
        raise BadRequest(
            "The model has no start token, so it cannot be held against other first tokens: "
            "choose a model whose tokenizer has one."
        )
    return subject.source.start


def _position_ids(
    arrangements: Sequence[formulas.Arrangement], far: Sequence[int], length: int
) -> np.ndarray:
    """Return position ids ``[row, pos]``; the first key is moved back by moving all others on."""
    ids = np.tile(np.arange(length), (len(arrangements) + len(far), 1))
    ids[: len(arrangements), : spec.FRONT] = [arrangement.ids for arrangement in arrangements]
    ids[len(arrangements) :, 1:] += np.array(far, int)[:, None]
    return ids


def _tokens(
    text: np.ndarray, start: int, arrangements: Sequence[formulas.Arrangement], far: int
) -> np.ndarray:
    rows = np.tile(text, (len(arrangements) + far, 1))
    for row, arrangement in zip(rows, arrangements, strict=False):
        row[arrangement.place], row[1 - arrangement.place] = (
            start if arrangement.start_token else text[0],
            text[1],
        )
    rows[len(arrangements) :, 0] = start
    return rows
