"""How a head reads the helix: along its tangent or its radius."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import KEPT_QUERIES, Analysis, Progress, Statistics
from poskernel_core.analyses.helix import formulas
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.specs import BAND, RunSpec
from poskernel_core.common.views import Gathered, StatisticsView

SCORE_PARTS = (
    "position_score",
    "tangent_part",
    "radial_part",
    "third_part",
    "rest",
    "observed_score",
)
SHARES = ("tangent_share", "radial_share", "third_share", "helix_fit")


class TangentParams(formulas.StreamParams):
    """Parameters of the tangent picture."""

    query: int = Field(ge=1, description="query position n")
    helix_from: Literal["texts", "repeated"] = Field(
        "texts", description="the helix: mean stream of the windows, or of one token repeated"
    )


class Tangent(Analysis[TangentParams]):
    r"""Position-only scores around a query, split along the helix of the layer's stream.

    Formula: with $y_i$ the point of position $i$ on the first three components of $X^l$, the head's
    reading direction $u$ is the least-squares solution of $a(n,i) = c + u \cdot y_i$ over all $i$.
    $u$ is split along the radius $y_n / |y_n|$, the tangent $y_{n+1} - y_{n-1}$ made orthogonal to
    the radius, and the third direction.

    Choices: $X^l$ is the mean stream of the windows, which the heads read; the post's helix is that
    of repeated tokens (``helix_from``).

    Limits: where ``helix_fit`` is low, the head reads more of the positions than three components
    contain. Errors count texts in mean queries, mean keys and scores. Parts and shares have none:
    the axes of the helix turn from sample to sample of texts, and mean streams are not kept by
    groups of texts.

    Source: the tangent picture of "The positional embedding matrix and previous-token heads".
    """

    name = "tangent"
    title = "Tangent and radial reading of the helix"
    noun_phrase = "what heads read of the helix"
    error_counts = "windows"
    values = outputs("""
        ± position_score [layer head band], score (nats): $a(n,n-k)$ by mean query and mean keys, at
            offsets -32 to 32, its mean over the band subtracted
        ± observed_score [layer head band], score (nats): mean raw score of real text at that
            offset, over all $n$, content included
        tangent_part radial_part third_part [layer head band], score (nats): its parts along the
            helix
        rest [layer head band], score (nats): what the helix does not explain: the four parts add up
            to the score
        tangent_share radial_share third_share [layer head], share: shares of $|u|^2$
        helix_fit [layer head], share: $R^2$ of the fit; 1 is best
    """)
    precomputed = "always"
    ignores = KEPT_QUERIES  # mean queries exist at every position

    def default_query(self, context: int) -> int:
        """Return the usual position, or the last that has a neighbour on both sides."""
        return min(super().default_query(context), context - 2)

    def needs(self, run: RunSpec, params: TangentParams) -> Mapping[str, RunSpec]:
        first = formulas.first_position(run.context, run.start_token, params.leave_out)
        if not first < params.query < run.context - 1:
            raise BadRequest(
                f"The tangent needs a position on both sides: choose a query position of "
                f"{first + 1} to {run.context - 2}, not {params.query}."
            )
        if params.helix_from == "texts":
            return {"main": run}
        return {"main": run, "repeated": formulas.repeated_run(run, params.tokens)}

    def answer(self, statistics: Statistics, params: TangentParams, progress: Progress) -> Result:
        """Compute the helix only once, because mean residuals are not kept by groups of texts."""
        all_statistics = {**statistics, "helix": _helix(statistics, params, progress)}
        return super().answer(all_statistics, params, progress)

    def compute(self, statistics: Statistics, params: TangentParams, progress: Progress) -> Result:
        main = statistics["main"]
        helix = statistics.get("helix") or _helix(statistics, params, progress)
        arrays = self.of_layers(
            statistics, progress, lambda layer: _layer(helix.layer(layer), main, layer, params)
        )
        values = {name: arrays[name] for name in (*SCORE_PARTS, *SHARES)}
        return self.result(params, values, coordinates={"band": np.arange(-BAND, BAND + 1)})


def _helix(statistics: Statistics, params: TangentParams, progress: Progress) -> Gathered:
    """Return the helix of every layer around the query position, as statistics without groups.

    They are ``points [pos, component]``, from the first position that counts, and three orthonormal
    directions ``axes [direction, component]``: radius, tangent, and the third.
    """
    header = statistics["main"].header
    first = formulas.first_position(header.context, header.start_token, params.leave_out)
    frames = []
    for layer in range(header.n_layers):
        progress(0, header.n_layers)
        residuals = statistics.get("repeated", statistics["main"]).layer(layer)["mean_residuals"]
        frames.append(_frame(residuals[first:], params.query - first))
    points, axes = (np.stack(arrays) for arrays in zip(*frames, strict=True))
    alone = header.model_copy(update={"groups": 0})
    return Gathered(alone, {"residuals": {"points": points, "axes": axes}})


def _frame(residuals: np.ndarray, query: int) -> tuple[np.ndarray, np.ndarray]:
    rows = formulas.centred(residuals)
    points = rows @ formulas.principal(rows, 3)[0].T
    radius = points[query]
    tangent = points[query + 1] - points[query - 1]
    axes = np.linalg.qr(np.stack([radius, tangent, np.cross(radius, tangent)], axis=1))[0]
    return points, axes.T


def _layer(
    helix: Mapping[str, np.ndarray], main: StatisticsView, layer: int, params: TangentParams
) -> dict[str, np.ndarray]:
    first = main.header.context - len(helix["points"])
    arrays = main.layer(layer)
    queries = arrays["mean_queries"][:, params.query].astype(np.float64)
    keys = repeat_kv(arrays["mean_keys"], len(queries))
    products = np.einsum("hd,hid->hi", queries, keys[:, first:])[:, None]
    query = slice(params.query, params.query + 1)
    scores = main.header.rule(layer).scores(products, query, slice(first, keys.shape[1]))[:, 0]
    heads = [_split(row, helix, params.query - first) for row in scores]
    values = {name: np.stack([head[name] for head in heads]) for name in heads[0]}
    return values | {"observed_score": _without_mean(arrays["score_profile"])}


def _split(
    scores: np.ndarray, helix: Mapping[str, np.ndarray], query: int
) -> dict[str, np.ndarray]:
    """Return the parts of one head's scores ``[pos]`` in the band, and the shares."""
    points, axes = helix["points"], helix["axes"]
    design = np.column_stack([points, np.ones(len(scores))])
    fitted = np.linalg.lstsq(design, scores, rcond=None)[0]
    direction = axes @ fitted[:3]
    parts = direction[:, None] * (axes @ points.T)
    rest = scores - design @ fitted
    size, total = float(direction @ direction), float(np.square(scores - scores.mean()).sum())
    shares = np.square(direction) / size if size > 0 else np.full(3, np.nan)
    curves = dict(zip(SCORE_PARTS[:5], (scores, parts[1], parts[0], parts[2], rest), strict=True))
    values = {name: _band(row, query) for name, row in curves.items()}
    fit = 1 - float(np.square(rest).sum()) / total if total > 0 else np.nan
    numbers = zip(SHARES, (shares[1], shares[0], shares[2], fit), strict=True)
    return values | {name: np.array(value) for name, value in numbers}


def _band(row: np.ndarray, query: int) -> np.ndarray:
    """Return a row over keys, by the band's offsets ``n - i`` instead; NaN beyond the context."""
    keys = query - np.arange(-BAND, BAND + 1)
    inside = (keys >= 0) & (keys < len(row))
    return _without_mean(np.where(inside, row[np.clip(keys, 0, len(row) - 1)], np.nan))


def _without_mean(values: np.ndarray) -> np.ndarray:
    return values - np.nanmean(values, axis=-1, keepdims=True)
