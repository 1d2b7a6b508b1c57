"""What is drawn and said of attention in conversations."""

import math
from functools import partial

import plotly.graph_objects as go

from poskernel_core.analyses.claims import number_of, who
from poskernel_core.analyses.pictures import heads
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.plotting.layout import SHARE, legend_under_title, style
from poskernel_core.plotting.palette import CATEGORICAL, fade


def _template(result: Result) -> str:
    """Hold a head's attention to the template against the keys that it sees.

    One conversation has no errors: of it, only the numbers are told.
    """
    share, even = (
        number_of(result, "template_share"),
        float(result.values["template_visible_share"]),
    )
    passes = share.passes(even)
    if passes is None or (passes == "about" and not math.isnan(share.low)):
        return ""
    more = {"yes": ": more than its share", "no": ": less than its share"}.get(passes, "")
    return (
        f"In conversations {who(result)} gives {share} of the attention of what is said to the "
        f"chat template (the first key left out), which is {even:.2f} of the keys that it sees"
        f"{more}."
    )


def _by_class(result: Result) -> go.Figure:
    figure, queries = go.Figure(), result.words("query_classes")
    for place, name in enumerate(result.words("key_classes")):
        figure.add_bar(
            x=result.values["attention"][:, place],
            y=queries,
            orientation="h",
            name=f"to {name}",
            marker_color=fade(CATEGORICAL[place % len(CATEGORICAL)], 0.7),
            customdata=result.errors["attention"][:, place]
            if "attention" in result.errors
            else None,
            hovertemplate=f"from %{{y}} to {name}: %{{x:.3f}}<extra></extra>",
        )
    style(figure, x_title=SHARE, y_title="queries", height=320)
    figure.update_layout(barmode="stack").update_yaxes(autorange="reversed", showgrid=False)
    return legend_under_title(figure)


VIEWS: Views = {
    "conversations": (
        View("template_share template_visible_share []", says=_template),
        View(
            "attention [query_class key_class]",
            _by_class,
            "attention in conversations, by class of token",
            reading="Each bar holds the attention of the queries of one class of tokens: of the "
            "chat template, of what user and assistant say, and of the first token of each turn. "
            "Its parts say to which class the keys belong. The first key is a part of its own: it "
            "is often a sink.",
            explains="template_share",
        ),
        View(
            "template_share [layer head]",
            partial(heads, name="template_share", hover_text=" of what is said"),
            "attention to the chat template, the first key left out",
        ),
    )
}
