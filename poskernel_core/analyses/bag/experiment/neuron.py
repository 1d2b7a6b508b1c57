"""One neuron: the heads of its bag, tokens' contributions, its traces; searches by word."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.bag.experiment.bag import Bag, build_bag, fingerprint, listed_tokens
from poskernel_core.analyses.bag.experiment.predicted import PredictionParts, predict
from poskernel_core.analyses.bag.experiment.vocabulary import ends, named_ends
from poskernel_core.analyses.bag.neuron import (
    ExtendedEmbedding,
    ExtendedEmbeddingParams,
    Neuron,
    NeuronParams,
    NeuronTrace,
    NeuronTraceParams,
    WordNeurons,
    WordNeuronsParams,
)
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.experiment.contents import (
    chapter,
    destination_windows,
    last_rows,
    token_id,
    token_ids,
)
from poskernel_core.analyses.contextual_heads.experiment.contextual import LayerRows
from poskernel_core.analyses.contextual_heads.experiment.duplicates import duplicates
from poskernel_core.analyses.contextual_heads.spec import BEHAVIOURS, Thresholds, behaviour
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import first_in_equal_groups
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.specs import DEFAULT_SKIP
from poskernel_core.data.moves import parse_cells
from poskernel_core.forward.first_layer import read_first_layer, see_first_layer

ROWS = 4096
SAMPLES = 32
FEWEST = 3


def chosen_heads(subject: ExperimentContext, params: BagParams) -> tuple[int, ...]:
    """Return the heads that fill the bag, ascending: those named, or else the contextual ones."""
    geometry = subject.model.geometry
    if params.heads.strip():
        cells = parse_cells(params.heads, geometry.n_layers, geometry.n_heads)
        if any(layer for layer, _ in cells):
            raise BadRequest(f"Expected heads of layer 0, got {params.heads!r}.")
        return tuple(sorted({head for _, head in cells}))
    token_id(subject, params.token)  # refuses a bad token before anything is computed
    key = (params.token, params.query, params.first_windows, fingerprint(subject))
    heads: tuple[int, ...] = subject.model.remember(
        "contextual", key, lambda: _contextual(subject, params)
    )
    if not heads:
        raise BadRequest(
            "No head of layer 0 is contextual by the usual thresholds (ETC 30 tokens or more, "
            "CV of the denominator 0.25 or less): name some, such as L0H0, L0H2."
        )
    return heads


def _contextual(subject: ExperimentContext, params: BagParams) -> tuple[int, ...]:
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    rows = LayerRows(subject.model.geometry.n_heads, len(texts))
    windows = destination_windows(texts, params.query, token_id(subject, params.token))
    skip = min(DEFAULT_SKIP, params.query - 1)
    for some, seen in last_rows(subject, windows, skip, (0,)):
        rows.add(seen[0], some)
    copies = duplicates(subject, params.query, SAMPLES, lambda _: None, last=0)
    values = rows.values()[0] | {name: mean[0] for name, (mean, _) in copies.items()}
    group = behaviour(values, Thresholds())
    return tuple(int(head) for head in (group == BEHAVIOURS.index("contextual")).nonzero()[0])


def bag_of(subject: ExperimentContext, params: BagParams, neuron: int | None = None) -> Bag:
    """Return the bag of the chosen heads; check that the neuron exists."""
    neurons = len(read_first_layer(subject.model).b_in)
    if neuron is not None and neuron >= neurons:
        raise BadRequest(f"No neuron {neuron}: expected 0 to {neurons - 1}.")
    return build_bag(subject, chosen_heads(subject, params), params)


def neuron(subject: ExperimentContext, params: NeuronParams) -> Result:
    """Return a neuron's contributions; see :class:`bag.neuron.Neuron`."""
    bag = bag_of(subject, params, params.neuron)
    ids = listed_tokens(subject, params.min_count)
    table, readers = bag.table(ids), bag.readers()
    contribution = (table @ readers[:, params.neuron]).numpy()
    w_out = torch.nn.functional.normalize(bag.layer.w_out, dim=1)
    extremes, words = named_ends(subject.decode, ids, contribution, params.top_k)
    values = extremes | {
        "contribution": contribution,
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


def neuron_trace(subject: ExperimentContext, params: NeuronTraceParams) -> Result:
    """Return both pre-activations; see :class:`bag.neuron.NeuronTrace`."""
    tokens = torch.from_numpy(_text(subject, params))
    bag = bag_of(subject, params, params.neuron)
    true = see_first_layer(subject.model, tokens[None]).activation[0, :, params.neuron]
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
    true, predicted, added = (array.astype(np.float64) for array in (true, predicted, added))
    error, left = ((true - predicted) ** 2).sum(), true - (predicted - added)
    spreads = {
        "r2": ((true - true.mean()) ** 2).sum(),
        "r2_of_bag": ((left - left.mean()) ** 2).sum(),
    }
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN for numbers that are all equal
        correlation = np.corrcoef(true, predicted)[0, 1]
    return {
        **{
            name: np.asarray(1 - error / spread if spread > 0 else np.nan)
            for name, spread in spreads.items()
        },
        "correlation": correlation,
        "sign_agreement": np.asarray(((true > 0) == (predicted > 0)).mean()),
    }


def extended_embedding(subject: ExperimentContext, params: ExtendedEmbeddingParams) -> Result:
    """Return the nearest tokens; see :class:`bag.neuron.ExtendedEmbedding`."""
    word = token_id(subject, params.word)
    bag = bag_of(subject, params)
    listed = np.setdiff1d(listed_tokens(subject, params.min_count), [word])
    if not len(listed):
        raise BadRequest(
            f"No other token occurs {params.min_count} times in the windows: ask for fewer."
        )
    ids = np.concatenate([[word], listed])
    table, plain = bag.table(ids), bag.layer.embedding[ids]
    cosine, plain_cosine = (
        torch.cosine_similarity(
            embeddings[:1] - embeddings.mean(dim=0), embeddings - embeddings.mean(dim=0)
        ).numpy()
        for embeddings in (table, plain)
    )
    nearest = np.argsort(-cosine[1:], kind="stable")[: params.top_k] + 1
    length = torch.linalg.norm(table, dim=1).numpy()
    return ExtendedEmbedding.result(
        params,
        {
            "nearest": ids[nearest],
            "cosine": cosine[nearest],
            "plain_cosine": plain_cosine[nearest],
            "length": np.asarray(length[0]),
            "length_rank": np.asarray((length[1:] < length[0]).mean()),
        },
        texts={"words": subject.decode(ids[nearest].tolist())},
    )


def word_neurons(subject: ExperimentContext, params: WordNeuronsParams) -> Result:
    """Return the neurons of some words; see :class:`bag.neuron.WordNeurons`."""
    if subject.encode is None or not params.words.split():
        raise BadRequest("Expected words, and a model with a tokenizer: give some.")
    tokens = [token for word in params.words.split() for token in subject.encode(f" {word}")]
    bag = bag_of(subject, params)
    readers = bag.readers()
    values = ends(bag.table(listed_tokens(subject, params.min_count)), readers, 1)
    mean, std = values["contribution_mean"], values["contribution_std"]
    added = bag.embed(torch.tensor(tokens, device="cpu")) @ readers
    word_scores = (added - mean) / torch.where(std > 0, std, torch.nan)
    score = word_scores.mean(dim=0).numpy()
    order = np.argsort(score, kind="stable")
    return WordNeurons.result(
        params,
        {
            "score": score,
            "word_score": word_scores.numpy(),
            "for": order[::-1][: params.top_k].copy(),
            "against": order[: params.top_k].copy(),
        },
        texts={"words": subject.decode(tokens)},
    )
