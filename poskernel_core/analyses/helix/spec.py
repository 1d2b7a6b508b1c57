"""The helix: extended positional embeddings at every layer, on their principal components."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import KEPT_QUERIES, OWN_PASS, Analysis, Progress, Statistics
from poskernel_core.analyses.helix import formulas
from poskernel_core.common.result import Result, Value, outputs
from poskernel_core.common.specs import RunSpec
from poskernel_core.common.views import StatisticsView
from poskernel_core.models.geometry import Geometry

SHOWN = 3
"""Components that are drawn."""
LISTED = 10
"""Components whose explained variance is listed."""


class HelixParams(formulas.StreamParams):
    """Parameters of the helix."""

    prompts: Literal["repeated", "texts"] = Field(
        "repeated", description="prompts of one repeated token each, or the windows of the corpus"
    )
    subspace: int = Field(3, ge=1, le=10, description="k of the top-k subspaces compared")
    far: float = Field(
        1.0,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="entries beyond this many times the rms count as far from 0",
    )


class Helix(Analysis[HelixParams]):
    r"""``X^l``: the mean residual stream before layer ``l`` on prompts of one repeated token.

    The mean over positions is subtracted, so ``X^0`` is ``W_pos`` minus its mean over positions.

    Formula: $X^l_n = \mathbb{E}_\text{token}[x^l_n] - \mathbb{E}_{\text{token},\,n}[x^l_n]$ with
    $x^l$ the stream before layer $l$; canonical angles are $\arccos$ of the singular values of
    $U^\top V$.

    Choices: 100 repeated tokens, without a start token. If ``prompts`` are the windows of a corpus
    instead, $X^l$ is the mean stream that heads read in real text, including the mean token
    embeddings at layer 0; the start token's position is left out. The post's prose compares
    subspaces of the residual stream, but its code compares left singular vectors. Both are computed
    and labelled. The post gives no threshold for "far from 0"; the root mean square is ours. Signs
    of components are chosen to agree with the layer before.

    Limits: rotary models add no positions to the stream, so a repeated token looks the same
    everywhere; for them only the version over windows works. There are no errors, because the mean
    stream is not kept by groups of texts.

    Source: "The positional embedding matrix and previous-token heads".
    """

    name = "helix"
    title = "Helix of extended positional embeddings"
    noun_phrase = "the helix of positions"
    values = (
        *outputs("""
            projection [layer pos component], residual stream units: $X^l$ on its own first three
                principal components
            on_embedding [layer pos component], residual stream units: $X^l$ on the components of
                $W_{pos}$
            joint [layer pos component], residual stream units: $X^l$ on the components of both
                stacked
            embedding_on_layer embedding_joint [layer pos component], residual stream units:
                $W_{pos}$ on the components of $X^l$, and of both
        """),
        *(
            Value(
                f"group_{size}",
                ("layer", f"group_of_{size}", "component"),
                "residual stream units",
                "means of ``projection`` over groups of that many positions, by the first position "
                "of each group",
            )
            for size in formulas.GROUP_SIZES
        ),
        *outputs("""
            explained_variance [layer variance_component], share of variance: shares of the variance
                of $X^l$
            angles_residual [layer layer_2 angle], degrees: canonical angles between the top-k
                subspaces of the residual stream (right singular vectors of $X^l$)
            angles_position [layer layer_2 angle], degrees: canonical angles between the top-k
                directions in position space (left singular vectors) of the uncentred $W_{pos}$
                (layer 0) and each later layer's normed input
            far_share [layer], share of entries: share of entries further from 0 than ``far`` times
                their root mean square
            token_spread [layer], relative to the mean over tokens: root mean square distance
                between one prompt's $X^l$ and the mean over prompts, relative to the size of the
                mean (Frobenius norms, all positions but a start token's); over repeated tokens it
                says how little the choice of token matters, over windows it is mostly their content
        """),
    )
    precomputed = "always"
    ignores = KEPT_QUERIES | OWN_PASS

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        """Return texts as prompts for models that add no positions to the stream."""
        return {} if geometry.scheme == "learned" else {"prompts": "texts"}

    def with_params(self, run: RunSpec, params: HelixParams) -> RunSpec:
        if params.prompts == "texts":
            return run.model_copy(update={"gather": formulas.STREAM_SUMS})
        return formulas.repeated_run(run, params.tokens)

    def compute(self, statistics: Statistics, params: HelixParams, progress: Progress) -> Result:
        view = statistics["main"]
        layers = view.header.n_layers
        start = formulas.first_position(
            view.header.context, view.header.start_token, params.leave_out
        )
        first = formulas.centred(view.layer(0)["mean_residuals"][start:])
        own: list[dict[str, np.ndarray]] = []
        axes: list[tuple[np.ndarray, np.ndarray]] = []
        for layer in range(layers):
            arrays = _layer(view.layer(layer), first, own, params, int(view.header.start_token))
            axes.append((arrays.pop("axes"), _position_axes(view, layer, params.subspace, start)))
            own.append(arrays)
            progress(layer + 1, layers)
        values = {
            name: np.stack([entry[name] for entry in own]) for name in own[0] if name != "own"
        }
        for place, name in enumerate(("angles_residual", "angles_position")):
            of_layers = [pair[place] for pair in axes]
            values[name] = np.array(
                [[formulas.canonical_angles(a, b) for b in of_layers] for a in of_layers]
            )
        positions = np.arange(start, view.header.context)
        places = {f"group_of_{size}": positions[::size] for size in formulas.GROUP_SIZES}
        return self.result(params, values, coordinates={"pos": positions} | places)


def _layer(
    arrays: Mapping[str, np.ndarray],
    first: np.ndarray,
    earlier: list[dict[str, np.ndarray]],
    params: HelixParams,
    start: int,
) -> dict[str, np.ndarray]:
    """Return one layer's values, top-k components as columns (``axes``), and ``own`` axes."""
    rows = formulas.centred(arrays["mean_residuals"][-len(first) :])
    components, shares = formulas.principal(rows, max(LISTED, params.subspace))
    before = earlier[-1]["projection"] if earlier else None
    own = _signed(components[:SHOWN], rows, before)
    embedding = earlier[0]["own"] if earlier else own
    both = _signed(formulas.principal(np.vstack([first, rows]), SHOWN)[0], rows, rows @ own.T)
    size = float(np.square(formulas.centred(arrays["mean_residuals"][start:])).sum())
    spread = max(float(arrays["centred_square"]) - size, 0.0)
    projection = rows @ own.T
    values = {
        "projection": projection,
        "on_embedding": rows @ embedding.T,
        "joint": rows @ both.T,
        "embedding_on_layer": first @ own.T,
        "embedding_joint": first @ both.T,
        "explained_variance": shares[:LISTED],
        "far_share": np.array(formulas.far_share(rows, params.far)),
        "token_spread": np.array(np.sqrt(spread / size) if size > 0 else np.nan),
        "axes": components[: params.subspace].T,
        "own": own,
    }
    groups = {f"group_{g}": formulas.group_means(projection, g) for g in formulas.GROUP_SIZES}
    return values | groups


def _signed(components: np.ndarray, rows: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """Return components with signs that make the projected rows agree with ``before``."""
    projected = rows @ components.T
    target = np.sign(np.arange(len(rows)) - len(rows) / 2)[:, None] if before is None else before
    signs = np.where((projected * target).sum(axis=0) < 0, -1.0, 1.0)
    return components * signs[:, None]


def _position_axes(view: StatisticsView, layer: int, count: int, start: int) -> np.ndarray:
    arrays = view.layer(layer)
    learned = layer == 0 and view.header.scheme == "learned"
    rows = arrays["position_rows"] if learned else arrays["mean_normed"]
    return formulas.left_directions(rows[start:], count)
