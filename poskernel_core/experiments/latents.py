"""Sub-latents: independent components of the extended embeddings, as one neuron reads them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.errors import BadRequest
from poskernel_core.experiments.bag import listed_tokens
from poskernel_core.experiments.neuron import bag_of
from poskernel_core.views import StatisticsView

if TYPE_CHECKING:
    from poskernel_core.analyses.neuron import NeuronLatentsParams

__all__ = ["components", "neuron_latents"]

MOST_TOKENS = 20_000
"""Tokens that components are found on; all tokens are then read in them."""

ITERATIONS = 1000
ROWS = 4096


def neuron_latents(
    subject: Subject, main: StatisticsView, params: NeuronLatentsParams, progress: Progress
) -> Result:
    """Decompose a neuron; see :class:`~poskernel_core.analyses.NeuronLatents`.

    Raises:
        BadRequest: no such neuron, too few tokens, or the bag cannot be built.
    """
    progress(0, 2)
    bag = bag_of(subject, main, params, params.neuron)
    ids = listed_tokens(subject, params.fewest)
    most = min(len(ids) - 1, bag.layer.embedding.shape[1])
    if params.components > most:
        raise BadRequest(
            f"{len(ids)} tokens in {bag.layer.embedding.shape[1]} dimensions have at most {most} "
            f"components, got {params.components} (--components)."
        )
    table = bag.table(ids).numpy()
    progress(1, 2)
    assert subject.source is not None
    sources, directions = components(table, params.components, subject.source.seed)
    read = bag.readers()[:, params.neuron].numpy()
    found = (table @ read).astype(np.float64)
    weight = directions @ read
    sources, weight = sources * np.where(weight < 0, -1, 1), np.abs(weight)
    share = weight**2 / found.var()
    order = np.argsort(-share, kind="stable")[: params.shown]
    return _result(subject, params, ids, sources[:, order], weight[order], share, order)


def components(table: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values ``[token, latent]`` of unit variance, and directions ``[latent, model]``.

    ``values @ directions`` is what the components hold of the centred table.
    """
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    generator = np.random.default_rng(seed)
    some = table
    if len(table) > MOST_TOKENS:
        some = table[np.sort(generator.choice(len(table), MOST_TOKENS, replace=False))]
    model = FastICA(count, whiten="unit-variance", max_iter=ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last estimate serves as well
        model.fit(some)
    values = model.transform(table).astype(np.float64)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    parts = np.array_split(np.arange(len(table)), -(-len(table) // ROWS))
    return values, sum(values[some].T @ table[some] for some in parts) / len(table)


def _result(
    subject: Subject,
    params: NeuronLatentsParams,
    ids: np.ndarray,
    sources: np.ndarray,
    weight: np.ndarray,
    share: np.ndarray,
    order: np.ndarray,
) -> Result:
    places = np.argsort(sources, axis=0, kind="stable").T
    ends = {"top": places[:, ::-1][:, : params.listed], "bottom": places[:, : params.listed]}
    values = {"share": share[order], "weight": weight, "rest": np.asarray(1 - share.sum())}
    for name, chosen in ends.items():
        values[name] = ids[chosen]
        values[f"{name}_value"] = np.take_along_axis(sources.T, chosen, axis=1)
    used = np.unique(np.concatenate([values["top"], values["bottom"]])).tolist()
    units = {"share": "share of variance", "rest": "share of variance", "weight": "pre-activation"}
    axes: dict[str, tuple[str, ...]] = {"share": ("latent",), "weight": ("latent",), "rest": ()}
    return Result(
        analysis="neuron-latents",
        params=params.model_dump(),
        values=values,
        axes={name: axes.get(name, ("latent", "rank")) for name in values},
        units={
            name: units.get(name, "token" if name in ends else "standard deviations")
            for name in values
        },
        provenance={"token_words": dict(zip(map(str, used), subject.decode(used), strict=True))},
    )
