"""A neuron along one text: predicted by the bag, and computed by the model."""

import numpy as np
import torch

from poskernel_core.analyses.bag.experiment.bag import Bag
from poskernel_core.analyses.bag.experiment.neuron import bag_of
from poskernel_core.analyses.bag.experiment.predicted import PredictionParts, predict
from poskernel_core.analyses.bag.neuron import NeuronTrace, NeuronTraceParams
from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.contextual_heads.experiment.contents import chapter, token_ids
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.forward.first_layer import see

FEWEST = 3


def neuron_trace(
    subject: ExperimentContext,
    statistics: Statistics,
    params: NeuronTraceParams,
    progress: Progress,
) -> Result:
    """Return both pre-activations; see :class:`~poskernel_core.analyses.NeuronTrace`."""
    main = statistics["main"]
    progress(0, 1)
    tokens = torch.from_numpy(_text(subject, params))
    bag = bag_of(subject, main, params, params.neuron)
    true = see(subject.model, tokens[None]).activation[0, :, params.neuron]
    parts = predict(bag, tokens, params.kernel)
    values = _numbers(bag, parts, params.neuron)
    read = bag.readers()[:, params.neuron]
    values |= {"true": true.numpy(), "contribution": (bag.embed(tokens) @ read).numpy()}
    values["contribution"][: bag.start] = np.nan
    values |= agreement(*(values[name][bag.start :] for name in ("true", "predicted", "bag")))
    return NeuronTrace.result(
        params,
        values,
        texts={
            "heads": [head_name(0, head) for head in bag.heads],
            "tokens": subject.decode(tokens.tolist()),
        },
    )


def _text(subject: ExperimentContext, params: NeuronTraceParams) -> np.ndarray:
    if params.text and params.item:
        raise BadRequest("Expected a text or a chapter, got both: give one.")
    if params.text or params.item:
        ids = token_ids(subject, chapter(params.item) if params.item else params.text)
        if len(ids) < FEWEST + subject.start_token or not (params.text + params.item).strip():
            raise BadRequest(f"Expected a text of {FEWEST} tokens or more: give a longer one.")
        return ids
    if params.window >= len(subject.windows):
        raise BadRequest(f"No window {params.window}: expected 0 to {len(subject.windows) - 1}.")
    return subject.windows[params.window]


def _numbers(bag: Bag, parts: PredictionParts, neuron: int) -> dict[str, np.ndarray]:
    """Return the prediction and its parts, ``[pos]`` each; "direct" includes the biases."""
    layer = bag.layer
    named = {"bag": parts.bag, "position": parts.position, "others": parts.others,
             "direct": parts.direct}  # fmt: skip
    values = {
        name: parts.scale * (layer.norm2.linear(part) @ layer.w_in[:, neuron])
        for name, part in named.items()
    }
    values["direct"] += layer.norm2.bias @ layer.w_in[:, neuron] + layer.b_in[neuron]
    values["predicted"] = torch.stack(list(values.values())).sum(dim=0)
    return {name: value.numpy() for name, value in values.items()}


def agreement(true: np.ndarray, predicted: np.ndarray, added: np.ndarray) -> dict[str, np.ndarray]:
    """Return the quality of the prediction, and of the bag's part against what the others leave."""
    true, predicted, added = (each.astype(np.float64) for each in (true, predicted, added))
    error, left = ((true - predicted) ** 2).sum(), true - (predicted - added)
    spreads = {
        "r2": ((true - true.mean()) ** 2).sum(),
        "r2_of_bag": ((left - left.mean()) ** 2).sum(),
    }
    return {
        **{
            name: np.asarray(1 - error / spread if spread > 0 else np.nan)
            for name, spread in spreads.items()
        },
        "correlation": np.asarray(_correlation(true, predicted)),
        "sign_agreement": np.asarray(((true > 0) == (predicted > 0)).mean()),
    }


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left - left.mean(), right - right.mean()
    size = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum()) / size if size > 0 else np.nan
