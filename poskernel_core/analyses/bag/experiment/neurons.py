"""All neurons of layer 0: contributions of the bag, and quality of its predictions."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.bag.contextual_neurons import (
    ContextualNeurons,
    ContextualNeuronsParams,
)
from poskernel_core.analyses.bag.experiment.bag import TEXTS, Bag, listed_tokens
from poskernel_core.analyses.bag.experiment.neuron import bag_of
from poskernel_core.analyses.bag.experiment.predicted import (
    KERNELS,
    SCALES,
    PredictionParts,
    joint,
    predict,
)
from poskernel_core.analyses.bag.experiment.vocabulary import ends, worded
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.groups import first_in_equal_groups
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.forward.first_layer import see_first_layer
from poskernel_core.statistics.moments import Groups, Numbers, replicated

VARIANTS = tuple(f"{kernel} kernel, scale by {by}".replace("by mean", "of all")
                 for kernel in KERNELS for by in SCALES)  # fmt: skip


class Quality:
    """Sums over windows of the heads' true and predicted joint output, at a few even places."""

    def __init__(self, bag: Bag, length: int, places: int) -> None:
        self._bag = bag
        self.places = np.unique(np.linspace(bag.start, length - 1, places).round().astype(int))
        self._true, self._scalars, self._predicted = Groups(), Groups(), Groups()

    def add(self, tokens: Tensor, heads: Tensor, text: int) -> None:
        """Add a text: its tokens ``[pos]`` and the true ``heads [pos, head, d]``."""
        bag, here, some = self._bag, torch.from_numpy(self.places), range(text, text + 1)
        chosen = list(bag.heads)
        true = torch.einsum("nhd,hdm->nm", heads[here][:, chosen], bag.layer.w_o[chosen]).double()
        pairs = [joint(bag, tokens, k, by, here) for k in KERNELS for by in SCALES]
        predictions = torch.stack([(written + fixed).double() for written, fixed in pairs])
        error = ((true - predictions) ** 2).sum(dim=-1)
        squares = (true**2).sum(dim=-1).expand_as(error)
        cosine = torch.cosine_similarity(true[None], predictions, dim=-1)
        self._scalars.add(torch.stack([cosine, error, squares])[None], some)
        self._true.add(true[None], some)
        self._predicted.add(predictions[None], some)

    def numbers(self) -> list[Numbers]:
        """Return values ``[variant, query]``, then their leave-one-group-out replicates."""
        return replicated(_numbers, self._scalars, self._true, self._predicted)


def _numbers(scalars: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> Numbers:
    """Return the numbers from means over windows.

    ``scalars [3, variant, query]`` are cosine, squared error and squared length; ``true [query,
    model]`` and ``predicted [variant, query, model]`` are outputs. Centring both outputs lowers the
    squared error by the squared difference of the means.
    """
    cosine, error, squares = scalars
    variance = squares - (true**2).sum(axis=-1)
    variance = np.where(variance > 1e-9 * squares, variance, np.nan)
    shift = ((true - predicted) ** 2).sum(axis=-1)
    return {
        "bag_cosine": cosine,
        "bag_r2": 1 - error / variance,
        "bag_centred_r2": 1 - (error - shift) / variance,
    }


PERCENTILES = (0, 5, 50, 95, 100)
STRONGEST = 5
ENDS = ("top", "bottom")


class NeuronSums:
    """Sums over windows and positions of true and predicted pre-activations, by group."""

    NAMES = ("true", "true2", "error2", "bag", "bag2", "left", "left2", "agree", "fires")

    def __init__(self) -> None:
        self._sums = Groups()

    def add(self, bag: Bag, parts: PredictionParts, true: Tensor, text: int) -> None:
        """Add the positions of a text after the start token; ``true [pos, neuron]``."""
        predicted, added = parts.activation(bag), parts.through(parts.bag, bag)
        true, predicted, added = (x[bag.start :].double() for x in (true, predicted, added))
        agree, fires = ((true > 0) == (predicted > 0)).double(), (true > 0).double()
        left = true - (predicted - added)  # the part that the bag should explain
        rows = (
            true,
            true**2,
            (true - predicted) ** 2,
            added,
            added**2,
            left,
            left**2,
            agree,
            fires,
        )
        self._sums.add(torch.stack([row.mean(dim=0) for row in rows])[None], range(text, text + 1))

    def numbers(self) -> list[Numbers]:
        """Return values ``[neuron]``, then their leave-one-group-out replicates."""
        return replicated(self._numbers, self._sums)

    def _numbers(self, means: np.ndarray) -> Numbers:
        mean = dict(zip(self.NAMES, means, strict=True))
        variance, left = (_variance(mean[f"{name}2"], mean[name]) for name in ("true", "left"))
        drive = np.maximum(mean["bag2"] - mean["bag"] ** 2, 0)
        return {
            "drive": np.sqrt(drive),
            "drive_share": drive / variance,
            "r2": 1 - mean["error2"] / variance,
            "r2_of_bag": 1 - mean["error2"] / left,
            "sign_agreement": mean["agree"],
            "fires": mean["fires"],
        }


def _variance(square: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the variance from mean square and mean; NaN where it is only rounding error."""
    variance = square - mean**2
    return np.where(variance > 1e-9 * square, variance, np.nan)


def contextual_neurons(subject: ExperimentContext, params: ContextualNeuronsParams) -> Result:
    """Rank all neurons; see :class:`bag.contextual_neurons.ContextualNeurons`."""
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    subject.progress(0, len(texts))
    bag = bag_of(subject, params)
    quality, neurons = Quality(bag, texts.shape[1], params.n_positions), NeuronSums()
    for some, rows in subject.batches(texts, TEXTS):
        seen = see_first_layer(subject.model, rows)
        for place, tokens in enumerate(rows):
            quality.add(tokens, seen.heads[place], some[place])
            parts = predict(bag, tokens, params.kernel)
            neurons.add(bag, parts, seen.activation[place], some[place])
    both = zip(neurons.numbers(), quality.numbers(), strict=True)
    full, *without = (mine | theirs for mine, theirs in both)
    ids = listed_tokens(subject, params.min_count)
    tensors = ends(bag.table(ids), bag.readers(), params.top_k)
    contributions = {name: tensor.numpy() for name, tensor in tensors.items()}
    listed = {name: ids[contributions[name]] for name in ENDS}
    values = full | contributions | listed
    values |= {
        "kernel": bag.common[params.query, : params.query + 1].numpy(),
        "norm_scale": np.stack([np.percentile(1 / scale, PERCENTILES) for scale in bag.scales]),
        "denominator": bag.denominators.numpy(),
    }
    words = worded(subject.decode, listed)
    return ContextualNeurons.estimated(
        subject,
        params,
        [values, *without],
        coordinates={
            "query": quality.places,
            "percentile": np.array(PERCENTILES),
            "chosen": np.array(bag.heads),
        },
        texts={
            **words,
            "heads": [head_name(0, head) for head in bag.heads],
            "variants": VARIANTS,
            "strongest": list(_strongest(values, words)),
        },
    )


def _strongest(values: dict[str, np.ndarray], words: dict[str, list[list[str]]]) -> Iterator[str]:
    """Yield two lines for each of the most driven neurons: the tokens at either end."""
    order = np.argsort(-np.nan_to_num(values["drive_share"]), kind="stable")
    for neuron in order[:STRONGEST].tolist():
        for end in ENDS:
            pairs = zip(
                words[f"{end}_words"][neuron], values[f"{end}_contribution"][neuron], strict=True
            )
            tokens = ", ".join(f"{word!r} {value:.3g}" for word, value in pairs)
            yield f"neuron {neuron}, {end}: {tokens}"
