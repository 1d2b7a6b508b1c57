"""A text with a colour for each token."""

import numpy as np
from jinja2 import Template

from poskernel_core.plotting.layout import visible
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, fade

MAX_SHOWN = 1024
BELOW, ABOVE = BLUE, CATEGORICAL[4]
FULL_OPACITY = 0.65  # opacity, so that the page's own ink reads on it, light or dark
PERCENTILE = 98
TEXT = Template(
    """<div style="line-height:1.9;font-size:0.9rem;max-height:22rem;overflow-y:auto" tabindex="0"
role="region" aria-label="Text by {{ meaning }}">
{%- for title, colour, word, breaks in tokens %}<span title="{{ title }}" style="border-radius:3px;
padding:1px 2px;white-space:pre-wrap{% if colour %};background:{{ colour }}{% endif %}">{{ word -}}
</span>{% for _ in range(breaks) %}<br>{% endfor %}{% endfor %}</div>""",
    autoescape=True,
)


def coloured_text(words: list[str], values: np.ndarray, meaning: str) -> tuple[str, str]:
    """Return a text as HTML, and what its colours mean.

    Tokens are blue below 0 and orange above; hover shows position and number.
    """
    drawn = words[:MAX_SHOWN]
    there = np.abs(values[np.isfinite(values)])
    reach = float(np.percentile(there, PERCENTILE)) if there.size else 1.0
    colours = [
        fade(
            BELOW if value < 0 else ABOVE,
            round(min(abs(value) / (reach or 1.0), 1.0) * FULL_OPACITY, 3),
        )
        for value in np.nan_to_num(values).tolist()
    ]
    cut = f" The first {MAX_SHOWN} tokens." if len(words) > MAX_SHOWN else ""
    legend = (
        f"Tokens by their {meaning}: blue below 0, orange above, full colour at {reach:.2g}.{cut}"
    )
    tokens = []
    for place, (word, value) in enumerate(zip(drawn, values.tolist(), strict=False)):
        number = "none" if np.isnan(value) else f"{value:.3g}"
        title = f"{visible(word)} at {place}: {meaning} {number}"
        colour = "" if np.isnan(value) else colours[place]
        tokens.append((title, colour, word.replace("\n", "⏎"), word.count("\n")))
    return TEXT.render(meaning=meaning, tokens=tokens), legend
