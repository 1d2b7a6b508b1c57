"""ETC heat map: effective token count, kind and trust of every head's positional kernel."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pydantic import Field

from poskernel_core.analyses import kernels as math
from poskernel_core.analyses.base import Analysis, Progress, Result, SkipParams
from poskernel_core.config import RunSpec
from poskernel_core.views import StatisticsView

__all__ = ["EtcHeatMap", "EtcParams", "summarise_row"]

AXES = ("layer", "head", "query")
UNITS = {
    "etc": "tokens",
    "log_etc": "ln tokens",
    "half_mass_distance": "tokens",
    "local_mass": "share of mass",
    "consistency": "TV distance, 0 to 1",
    "equivariance": "TV distance, 0 to 1",
    "fidelity": "TV distance, 0 to 1",
    "kind": "kind",
    "visible": "tokens",
}


class EtcParams(SkipParams):
    """Parameters of the ETC heat map."""

    local_tokens: int = Field(
        math.LOCAL_TOKENS, ge=1, le=256, description="last tokens that count as local"
    )
    local_share: float = Field(0.5, ge=0, le=1, description="mass in them that makes a head local")
    uniform_share: float = Field(
        0.5, ge=0, le=1, description="ETC over visible keys that makes a head uniform"
    )


class EtcHeatMap(Analysis):
    r"""Summaries of the mean kernel over sampled queries, for all heads and recorded positions.

    ``[layer, head, query]`` each.

    * ``etc``: effective token count of the kernel, in tokens, between 1 and the number of
      ``visible`` keys; ``log_etc`` is its natural logarithm.
    * ``half_mass_distance``: smallest offset within which half of the kernel's mass lies;
      ``local_mass``: mass in the last tokens.
    * ``kind``: local, slow decay or uniform.
    * ``consistency``: mean distance TV between kernels of different queries at the same position.
    * ``equivariance``: mean TV to the kernels of the other positions, aligned by offset and
      renormalised on their common support.
    * ``fidelity``: TV to the mean observed attention, ``skip`` applied to both. All three say how
      far to trust a kernel, in [0, 1], lower is better.

    Formula: $\mathrm{ETC}(n) = 1 / \sum_i K(n,i)^2$ of the positional kernel $K(n,i) =
    \mathrm{softmax}_i\; \text{scale}\; q_n \cdot m_i$ over the visible $i \ge \text{skip}$, with
    mean keys $m_i = \mathbb{E}_\text{text}[k_i]$; $\mathrm{TV}(K,K') = \tfrac12 \sum_i |K_i -
    K'_i|$.

    Choices: the first ``skip`` keys are left out, because heads park attention there. ``local`` if
    at least half of the mass lies in the last 10 tokens; else ``uniform`` if ETC is at least half
    of the visible keys; else ``slow decay``. The mean key is taken per head and after rotation, so
    that one definition serves learned and rotary positions; the first version of the post speaks
    of the mean stream through the key matrix, which is the same for learned positions.

    Limits: a kernel says what position does on average; where ``fidelity`` is poor, content
    decides. Errors are jackknives over queries (``etc``, ``log_etc``, ``local_mass``,
    ``fidelity``), over groups of queries (``consistency``), and the spread over the other
    positions (``equivariance``); the finite number of texts behind the mean keys is not in them.

    Source: "Positional kernels of attention heads"; consistency, equivariance and fidelity are
    ours.
    """

    name = "etc"
    title = "ETC heat map"
    spoken = "the effective token count"
    params = EtcParams

    def needs(self, run: RunSpec, params: EtcParams) -> Mapping[str, RunSpec]:
        """Return the run itself."""
        return {"main": run}

    def compute(
        self, statistics: Mapping[str, StatisticsView], params: EtcParams, progress: Progress
    ) -> Result:
        """Summarise every head at every recorded position."""
        view = statistics["main"]
        positions = np.array(view.header["positions"], dtype=np.int64)
        layers = range(view.header["n_layers"])
        rows = []
        with ThreadPoolExecutor(max_workers=2) as pool:
            work = [pool.submit(_layer, view, layer, positions, params) for layer in layers]
            try:
                for done, future in enumerate(work, start=1):
                    rows.append(future.result())
                    progress(done, len(layers))
            finally:
                pool.shutdown(cancel_futures=True)
        stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        return _result(stacked, positions, params)


def _result(stacked: dict[str, np.ndarray], positions: np.ndarray, params: EtcParams) -> Result:
    errors = {
        name.removesuffix("_error"): array
        for name, array in stacked.items()
        if name.endswith("_error")
    }
    values = {name: array for name, array in stacked.items() if not name.endswith("_error")}
    values["log_etc"] = np.log(values["etc"])
    errors["log_etc"] = errors["etc"] / values["etc"]
    values["kind"] = math.classify(
        values["local_mass"],
        values["etc"],
        values["visible"],
        params.local_share,
        params.uniform_share,
    )
    return Result(
        analysis=EtcHeatMap.name,
        params=params.model_dump(),
        values=values,
        axes=dict.fromkeys(values, AXES),
        units={name: UNITS[name] for name in values},
        errors=errors,
        labels={"kind": math.KINDS},
        coordinates={"query": positions},
    )


def _layer(
    view: StatisticsView, layer: int, positions: np.ndarray, params: EtcParams
) -> dict[str, np.ndarray]:
    """Return the summaries of one layer, ``[head, query]`` each."""
    arrays, header = view.layer(layer), view.header
    scale, window = header["scales"][layer], header["sliding_windows"][layer]
    heads, context = arrays["queries"].shape[1], header["context"]
    means = np.zeros((heads, len(positions), context))
    rows: list[dict[str, np.ndarray]] = []
    for place, n in enumerate(positions):
        low = math.first_visible(int(n), params.skip, window)
        if low > n:
            rows.append(_nothing(heads))
            continue
        kernels = math.kernel_rows(
            arrays["queries"][place], arrays["mean_keys"][:, low : n + 1], scale
        )
        means[:, place, low : n + 1] = kernels.mean(axis=1)
        rows.append(
            summarise_row(kernels, arrays["mean_rows"][:, place, low : n + 1], params.local_tokens)
        )
    found = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    return found | _equivariance(means, positions, params.skip)


def summarise_row(
    kernels: np.ndarray, observed: np.ndarray | None, local_tokens: int
) -> dict[str, np.ndarray]:
    """Summarise the kernels ``[head, sample, key]`` of one query position over its visible keys.

    ``observed [head, key]`` is the mean attention to the same keys, or None where there is none.
    """
    mean = kernels.mean(axis=1)
    heads, samples = kernels.shape[:2]
    row = {
        "etc": math.effective_tokens(mean),
        "half_mass_distance": math.half_mass_distance(mean).astype(np.float64),
        "local_mass": mean[:, -local_tokens:].sum(axis=-1),
        "visible": np.full(heads, float(mean.shape[-1])),
        "consistency": math.consistency(kernels),
        "consistency_error": math.consistency_error(kernels),
    }
    out = math.leave_one_out(kernels) if samples > 1 else np.full_like(kernels, np.nan)
    row["etc_error"] = math.jackknife_error(math.effective_tokens(out))
    row["local_mass_error"] = math.jackknife_error(out[..., -local_tokens:].sum(axis=-1))
    if observed is not None:
        share = observed / np.maximum(observed.sum(axis=-1, keepdims=True), 1e-300)
        row["fidelity"] = math.total_variation(mean, share)
        gaps = math.total_variation(out, np.broadcast_to(share[:, None], out.shape))
        row["fidelity_error"] = math.jackknife_error(gaps)
    return row


def _nothing(heads: int) -> dict[str, np.ndarray]:
    names = ("etc", "half_mass_distance", "local_mass", "consistency", "fidelity")
    errors = ("etc_error", "local_mass_error", "consistency_error", "fidelity_error")
    empty = {name: np.full(heads, np.nan) for name in names + errors}
    return empty | {"visible": np.zeros(heads)}


def _equivariance(means: np.ndarray, positions: np.ndarray, skip: int) -> dict[str, np.ndarray]:
    """Return the mean aligned distance of each position's kernel to those of the others."""
    gaps = math.aligned_distance(math.by_offset(means, positions), positions, skip)
    gaps[:, np.arange(len(positions)), np.arange(len(positions))] = np.nan
    count = np.isfinite(gaps).sum(axis=-1)
    total = np.nansum(gaps, axis=-1)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    spread = np.nansum(np.square(gaps - mean[..., None]), axis=-1)
    error = np.sqrt(spread / np.maximum(count - 1, 1) / np.maximum(count, 1))
    return {"equivariance": mean, "equivariance_error": np.where(count > 1, error, np.nan)}
