"""What is drawn and said of circuits."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.circuits.formulas import ENOUGH
from poskernel_core.analyses.circuits.spec import KEPT
from poskernel_core.analyses.claims import alike, number_of
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.patching.spec import CLEAR, SHARE
from poskernel_core.analyses.pictures import draw_lines, names_along, rows_of, unit_of
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.heads import head_name, largest_first, layer_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import add_band, look
from poskernel_core.plotting.layout import MUTED, legend_under_title, style
from poskernel_core.plotting.maps import MAX_TICKS
from poskernel_core.plotting.palette import BLUE, fade

MOST = 10
"""Senders that have a bar of their own."""
LINES = 40
"""Edges that are drawn as lines."""
ACROSS, DOWN, DOT = 34, 26, 2
"""Letters side by side and lines of them that have room on a phone; letters as wide as a dot."""
SIDES = {"top center": (0, -1), "bottom center": (0, 1), "middle right": (1, 0),
         "middle left": (-1, 0)}  # fmt: skip
"""Where a label may stand, the best first: to the right of its part, and below it."""


def no_difference(result: Result) -> str:
    """Say that the prompts differ by too little for shares; empty if they do not."""
    number = number_of(result, "difference")
    if number.low > CLEAR or not np.isfinite(number.high - number.low):
        return ""
    return (
        f"The metric differs by {number} nats, and its interval does not lie above {CLEAR:g}: "
        "shares of so little say nothing about heads."
    )


def _curves(result: Result) -> go.Figure:
    """Draw what is recovered over the number of heads, from 1 on, on a log axis."""
    counts, rows = result.coordinates["first"], [*rows_of(result, "recovered", "curve")]
    x = np.where(counts > 0, counts, np.nan)
    named = {name: (value, error) for name, value, error in rows}
    figure = draw_lines(x, named, over="first", unit=unit_of(result, "recovered"))
    colour = fade(look(len(rows) - 1).colour, 0.12)
    low, high = (result.values[f"random_{end}"] for end in ("low", "high"))
    names = {"name": "least of ten random orders"}, {"name": "most of ten random orders"}
    add_band(figure, x, low, high, colour, names[0], names[1] | {"showlegend": False})
    last = int(counts[-1])
    ticks = [tick for tick in counts.tolist() if tick.bit_count() == 1 and tick < 0.8 * last]
    return figure.update_xaxes(type="log", tickvals=[*ticks, last], ticktext=[*ticks, last])


def _enough(result: Result) -> str:
    """Say how many heads are enough, and how much of what they recover their kernels do."""
    curve = result.words("curve").index(KEPT) if KEPT in result.words("curve") else 0
    least, low, high = (float(number) for number in result.estimate_of("k80", curve))
    counts = result.coordinates["first"]
    if not np.isfinite(least + low + high) or least not in counts:
        return ""
    at = int(np.flatnonzero(counts == least)[0])
    if number_of(result, "recovered", curve, at).sign() <= 0:
        return ""
    total = counted(int(counts[-1]), "head")
    spread = f" ({low:.0f} to {high:.0f} without one group of pairs)" if low < high else ""
    content, also = number_of(result, "content", at), ""
    if content.sign() > 0:
        also = f"; {content} of it is lost if they attend by their kernels alone"
    fewer = result.values["recovered"][curve, : at or 1]
    most = int(fewer.argmax())
    early, least_after = (
        number_of(result, "recovered", curve, place)
        for place in (most, most + int(fewer[most:].argmin()))
    )
    if early.sign(ENOUGH) > 0 > least_after.sign(ENOUGH):
        first = (
            f"first {counts[most]} alone recover" if counts[most] > 1 else "first alone recovers"
        )
        spread = f" for good{spread}: the {first} {early}, before others work against it"
    return f"{least:.0f} of {total} recover {ENOUGH:g} of the behaviour{spread}{also}."


def values_of(result: Result) -> str:
    """Return the name of the values of edges that a result has: exact ones, or estimates."""
    return "edge" if np.isfinite(result.values["edge"]).any() else "estimate"


def _largest(result: Result) -> str:
    """Say along which edge most comes, if it is not 0 for sure."""
    name = values_of(result)
    sure = discovered(result, Condition(name, 0.0, "apart")).sure
    size = np.nan_to_num(np.abs(result.values[name]))
    *row, side, sender = map(int, np.unravel_index(int(size.argmax()), size.shape))
    if not sure[*row, side, sender]:
        return ""
    receiver = names_along(result, "receiver")[row[0] if row else 0]
    number = number_of(result, name, *row, side, sender)
    first, into = names_along(result, "sender")[sender], names_along(result, "input")[side]
    how = "To first order, the" if name == "estimate" else "The"
    others = alike(result.estimate_of(name), (*row, side, sender))
    ties = f", not to be told from {counted(others, 'other')}" if others > 0 else ""
    return (
        f"{how} largest edge leads from {first} to the {into} of {receiver}: {number} of the "
        f"difference{ties}."
    )


def _bars(result: Result) -> go.Figure:
    """Draw the largest edges into the inputs of one head, all senders together, and the rest."""
    name, senders = values_of(result), names_along(result, "sender")
    size = np.abs(np.nan_to_num(result.values[name])).max(axis=0)
    order = np.argsort(-size, kind="stable")[:MOST]
    both = {"all together": "whole", "not linear": "nonlinear"} if name == "edge" else {}
    figure = go.Figure()
    for place, side in enumerate(names_along(result, "input")):
        numbers, errors = (
            [*part[name][place, order], *(part[extra][place] for extra in both.values())]
            for part in (result.values, result.errors)
        )
        figure.add_bar(
            x=numbers, y=[*(senders[at] for at in order), *both], orientation="h",
            name=f"into its {side}", marker_color=fade(look(place).colour, 0.7),
            error_x={"array": errors, "thickness": 1.5, "width": 3, "color": MUTED},
            hovertemplate="<b>%{y}</b>: %{x:.3g} ± %{error_x.array:.2g}<extra></extra>",
        )  # fmt: skip
    style(figure, x_title=f"{SHARE} ± 1 s.e.", y_title="", height=520)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return legend_under_title(figure)


def _place(name: str, heads: int) -> tuple[float, float]:
    """Return where a part of the model stands: by its layer, heads above MLPs."""
    if (layer := layer_of(name)) >= 0:
        return layer, int(name.partition("H")[2])
    number = name.rpartition(" ")[2]
    return (int(number) + 0.5 if number.isdigit() else -1.0), heads


def label_sides(
    labels: Sequence[str], places: Sequence[tuple[float, float]], layers: int, rows: int
) -> list[str]:
    """Return where the labels of parts stand, so that even on a phone few touch others."""
    wide, high = layers / ACROSS, rows / DOWN
    taken = [(x, y, DOT * wide, 0.8 * high) for x, y in places]
    sides = []
    for label, (x, y) in zip(labels, places, strict=True):
        width = len(label) * wide
        boxes = {
            side: (x + right * (width / 2 + DOT * wide), y + below * high, width, high)
            for side, (right, below) in SIDES.items()
        }
        free = [side for side, box in boxes.items() if not any(_touch(box, one) for one in taken)]
        sides.append([*free, *SIDES][0])
        taken.append(boxes[sides[-1]])
    return sides


def _touch(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Tell whether two boxes overlap, each with its centre, width and height."""
    (x, y, width, height), (u, v, breadth, depth) = one, other
    return abs(x - u) < (width + breadth) / 2 and abs(y - v) < (height + depth) / 2


def _network(result: Result) -> go.Figure:
    """Draw heads from the first layer on the left to the last, and the largest edges as lines."""
    name, carried = values_of(result), result.values["carried"]
    value, heads = result.values[name], carried.shape[1]
    words = [result.words(axis) for axis in ("receiver", "input", "sender")]
    ends = [at for at in largest_first(np.abs(value), LINES) if value[at]]
    most = max((abs(float(value[at])) for at in ends), default=1.0)
    figure = go.Figure()
    every = np.argwhere(np.isfinite(carried))
    figure.add_scatter(
        x=every[:, 0], y=every[:, 1], mode="markers", name="heads", showlegend=False,
        marker={"color": fade(MUTED, 0.35), "size": 6},
        customdata=[head_name(*map(int, cell)) for cell in every],
        hovertemplate="<b>%{customdata}</b><extra></extra>",
    )  # fmt: skip
    for at in reversed(ends):
        receiver, side, sender = (names[place] for names, place in zip(words, at, strict=True))
        (x0, y0), (x1, y1) = _place(sender, heads), _place(receiver, heads)
        part = abs(float(value[at])) / most
        text = measured(value[at], result.errors[name][at])
        figure.add_scatter(
            x=np.linspace(x0, x1, 3), y=np.linspace(y0, y1, 3), mode="lines", name=side,
            legendgroup=side, showlegend=False, opacity=0.25 + 0.75 * part,
            line={"color": look(words[1].index(side)).colour, "width": 1 + 8 * part,
                  "dash": "solid" if value[at] > 0 else "dot"},
            hovertemplate=f"{sender} to the {side} of {receiver}: {text}<extra></extra>",
        )  # fmt: skip
    for place, side in enumerate(words[1]):
        figure.add_scatter(x=[None], y=[None], mode="lines", name=f"into a {side}",
                           line={"color": look(place).colour, "width": 4})  # fmt: skip
    named = dict.fromkeys([*words[0], *(words[2][sender] for *_, sender in ends)])
    parts = [_place(label, heads) for label in named]
    labels = [label.removeprefix("MLP ").replace("embeddings", "emb.") for label in named]
    x, y = zip(*parts, strict=True)
    figure.add_scatter(
        x=x, y=y, mode="markers+text", text=labels, name="parts",
        textposition=label_sides(labels, parts, *carried.shape), showlegend=False,
        customdata=[*named],
        marker={"size": 13, "color": [BLUE if label in words[0] else MUTED for label in named]},
        hovertemplate="<b>%{customdata}</b><extra></extra>",
    )  # fmt: skip
    style(figure, x_title="layer", y_title="head", height=520)
    layers, places = ([*range(size)] for size in carried.shape)
    names = [*map(str, places), "MLP"]
    figure.update_yaxes(
        autorange="reversed", tickvals=[*places, heads], ticktext=names, showgrid=False
    )
    ticks = layers[:: -(-len(layers) // MAX_TICKS)]
    figure.update_xaxes(tickvals=ticks, showgrid=False, zeroline=False)
    return legend_under_title(figure)


VIEWS: Views = {
    "edges": (
        View(
            "edge estimate [receiver input sender], carried [layer head]",
            _network,
            "who feeds whom",
            reading="Layers from left to right; below the heads of each layer, its MLP (at the "
            "far left, the embeddings). A line is an edge from a part to an input of a head, as "
            "wide as its effect (dotted: against the difference). Blue: heads that edges lead "
            "into; other heads are faint. Click a head "
            "to select it on all pages.",
            explains="agreement",
        ),
        View("edge estimate [receiver input sender]", says=_largest),
        View(
            "edge estimate [input sender], whole nonlinear [input]",
            _bars,
            "what feeds {receiver}",
            says=_largest,
            reading="What comes into the head's queries, keys and values from each earlier part "
            "of the model alone, the largest first. Below: all parts together, and what the sum "
            "of edges lacks to that.",
            explains="agreement difference",
        ),
    ),
    "faithfulness": (
        View(
            "recovered [curve first], random_low random_high [first]",
            _curves,
            "share of the behaviour with k heads",
            reading="With the first k heads of the ranking kept, all others give what they give on "
            "the changed prompt, or what is chosen in its place. Near 1 the kept heads are enough. "
            "Where the curve of kernels lies below, the kept heads need content: where they look "
            "depends on the tokens. Bands are one standard error; around the random orders, all "
            "ten of them.",
            explains="content k80",
        ),
        View("k80 [curve], recovered [curve first], content [first]", says=_enough),
    ),
}
