"""Sub-latents: independent components of the extended embeddings, and their shares in a neuron."""

import hashlib

import numpy as np
from jaxtyping import Float

from poskernel_core.analyses.bag.experiment.bag import listed_tokens
from poskernel_core.analyses.bag.experiment.neuron import bag_of
from poskernel_core.analyses.bag.experiment.vocabulary import worded
from poskernel_core.analyses.bag.neuron import NeuronLatents, NeuronLatentsParams
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result

MAX_TOKENS = 10_000
"""Components are fitted on at most this many tokens, and then applied to all tokens."""

ROWS = 4096
ITERATIONS = 200
CONVERGED = 1e-4
NOTHING = 1e-7
"""A variance or spread below this share of the largest one is rounding error."""


def neuron_latents(subject: ExperimentContext, params: NeuronLatentsParams) -> Result:
    """Decompose a neuron; see :class:`bag.neuron.NeuronLatents`."""
    subject.progress(0, 2)
    bag = bag_of(subject, params, params.neuron)
    ids = listed_tokens(subject, params.min_count)
    table = bag.table(ids).numpy()
    subject.progress(1, 2)
    assert subject.source is not None
    count, seed = params.components, subject.source.seed
    key = (count, seed, hashlib.sha256(table.tobytes()).digest())
    sources, directions = subject.model.remember(  # for all neurons
        "components", key, lambda: components(table, count, seed)
    )
    read = bag.readers()[:, params.neuron].numpy()
    contribution = (table @ read).astype(np.float64)
    if contribution.std() <= NOTHING * np.abs(contribution).max():
        raise BadRequest(
            f"All tokens move neuron {params.neuron} alike: there is nothing to take apart."
        )
    weight = directions @ read
    sources, weight = sources * np.where(weight < 0, -1, 1), np.abs(weight)
    share = weight**2 / contribution.var()
    order = np.argsort(-share, kind="stable")[: params.shown]
    sources = sources[:, order]
    places = np.argsort(sources, axis=0, kind="stable").T
    ends = {"top": places[:, ::-1][:, : params.top_k], "bottom": places[:, : params.top_k]}
    values = {"share": share[order], "weight": weight[order], "rest": np.asarray(1 - share.sum())}
    for name, chosen in ends.items():
        values[name] = ids[chosen]
        values[f"{name}_value"] = np.take_along_axis(sources.T, chosen, axis=1)
    words = worded(subject.decode, {name: values[name] for name in ends})
    return NeuronLatents.result(params, values, texts=words)


def components(table: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values ``[token, latent]`` of unit variance, and directions ``[latent, model]``.

    ``values @ directions`` approximates the centred table. Values are uncorrelated over all tokens:
    the rotation may be fitted on only some of the tokens, but it is orthogonal.
    """
    white, spread = _whitened(table, count)
    some = white
    if len(white) > MAX_TOKENS:
        chosen = np.random.default_rng(seed).choice(len(white), MAX_TOKENS, replace=False)
        some = white[np.sort(chosen)]
    turn = rotation(some, seed)
    return white @ turn.T, turn @ spread


def rotation(
    white: Float[np.ndarray, "sample component"], seed: int
) -> Float[np.ndarray, "component component"]:
    """Return the rotation that makes the components of white data independent.

    Source: FastICA, symmetric, with the log-cosh contrast (Hyvärinen 1999). The start is drawn as
    in scikit-learn, so that its numbers are found; the last estimate is good enough.
    """
    turn = _orthogonal(np.random.RandomState(seed).normal(size=2 * white.shape[1:]))
    for _ in range(ITERATIONS):
        bent = np.tanh(white @ turn.T)
        slope = (1 - bent**2).mean(axis=0)[:, None]
        before, turn = turn, _orthogonal(bent.T @ white / len(white) - slope * turn)
        if np.abs(np.abs((turn * before).sum(axis=1)) - 1).max() < CONVERGED:
            break
    return turn


def _orthogonal(matrix: np.ndarray) -> np.ndarray:
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)


def _whitened(table: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first components ``[token, count]`` of unit variance, and their directions."""
    mean = table.mean(axis=0, dtype=np.float64)
    parts = np.array_split(np.arange(len(table)), -(-len(table) // ROWS))
    centred = (table[some] - mean for some in parts)
    covariance = sum((part.T @ part for part in centred), np.zeros((len(mean),) * 2)) / len(table)
    variance, vectors = np.linalg.eigh(covariance)
    rank = int((variance > NOTHING * variance[-1]).sum())
    if count > rank:
        raise BadRequest(
            f"The extended embeddings of {len(table)} tokens span {rank} dimensions: ask for as "
            f"many components or fewer, got {count}."
        )
    scale, axes = np.sqrt(variance[::-1][:count]), vectors[:, ::-1][:, :count]
    white = np.concatenate([(table[some] - mean) @ (axes / scale) for some in parts])
    return white, (axes * scale).T
