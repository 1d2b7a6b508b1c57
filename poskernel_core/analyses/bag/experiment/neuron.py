"""One neuron: every token's contribution, and similar neurons."""

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.bag.experiment.bag import Bag, build_bag, listed_tokens
from poskernel_core.analyses.bag.experiment.heads import chosen_heads
from poskernel_core.analyses.bag.experiment.vocabulary import named_ends
from poskernel_core.analyses.bag.neuron import Neuron, NeuronParams
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.views import StatisticsView
from poskernel_core.forward.first_layer import count_neurons

ROWS = 4096


def bag_of(
    subject: ExperimentContext, main: StatisticsView, params: BagParams, neuron: int | None = None
) -> Bag:
    """Return the bag of the chosen heads; check that the neuron exists.

    Raises:
        BadRequest: no such neuron, or the bag cannot be built.
    """
    neurons = count_neurons(subject.model)
    if neuron is not None and neuron >= neurons:
        raise BadRequest(f"No neuron {neuron}: expected 0 to {neurons - 1}.")
    return build_bag(subject, main, chosen_heads(subject, main, params), params)


def neuron(
    subject: ExperimentContext, statistics: Statistics, params: NeuronParams, progress: Progress
) -> Result:
    """Return a neuron's contributions; see :class:`~poskernel_core.analyses.Neuron`.

    Raises:
        BadRequest: no such neuron, or the bag cannot be built.
    """
    main = statistics["main"]
    progress(0, 1)
    bag = bag_of(subject, main, params, params.neuron)
    ids = listed_tokens(subject, params.min_count)
    table, readers = bag.table(ids), bag.readers()
    found = (table @ readers[:, params.neuron]).numpy()
    w_out = torch.nn.functional.normalize(bag.layer.w_out, dim=1)
    extremes, words = named_ends(subject.decode, ids, found, params.top_k)
    values = extremes | {
        "contribution": found,
        "related": correlations(table, readers, params.neuron).numpy(),
        "output_cosine": (w_out @ w_out[params.neuron]).numpy(),
        "bias": bag.layer.b_in[params.neuron].numpy(),
    }
    return Neuron.result(
        params,
        values,
        coordinates={"token": ids},
        texts=words | {"heads": [head_name(0, head) for head in bag.heads]},
    )


def correlations(
    table: Float[Tensor, "token model"], readers: Float[Tensor, "model neuron"], neuron: int
) -> Float[Tensor, " neuron"]:
    """Return how every neuron's contributions correlate with those of ``neuron``, over tokens."""
    mean, wide = table.mean(dim=0, dtype=torch.float64), readers.double()
    covariance = torch.zeros(table.shape[1], table.shape[1], dtype=torch.float64, device="cpu")
    for some in table.split(ROWS):
        centred = some.double() - mean
        covariance += centred.T @ centred
    spread = torch.einsum("mn,mn->n", wide, covariance @ wide).clamp(min=0).sqrt()
    product = (covariance @ wide[:, neuron]) @ wide
    return (product / (spread * spread[neuron]).clamp(min=1e-300)).clamp(-1, 1)
