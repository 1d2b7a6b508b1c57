"""What is drawn, read and said of the bag of tokens, and of the neurons that it drives."""

import math

import numpy as np

from poskernel_core.analyses.bag.figures import (
    along_text,
    contributions,
    latents,
    nearest,
    neurons,
    ranked_scores,
    relatives,
)
from poskernel_core.analyses.bag.quality import mean_kernel, quality
from poskernel_core.analyses.claims import HALF, most, number_of, of_all, param
from poskernel_core.analyses.kernels.formulas import effective_tokens
from poskernel_core.analyses.views import View, Views, heads_view
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import NEGLIGIBLE, brief
from poskernel_core.plotting.layout import visible

LOW = 0.25
"""Centred R² below which the bag predicts the heads badly."""


def _neuron(result: Result) -> str:
    share = number_of(result, "drive_share")
    if (drives := {1: "more", -1: "less"}.get(share.sign(HALF))) is None:
        return ""
    return (
        f"The bag's part of neuron {result.chosen['neuron']} has {share} of the variance of "
        f"the neuron itself, {drives} than {HALF:g}."
    )


def _quality(result: Result) -> str:
    values = result.values["bag_centred_r2"]
    known = np.isfinite(values).any(axis=1)
    if not known.any():
        return ""
    medians = np.where(known, np.nanmedian(np.where(known[:, None], values, 0), axis=1), -np.inf)
    best = int(medians.argmax())
    signs = [
        number_of(result, "bag_centred_r2", best, place).sign(LOW)
        for place in range(values.shape[1])
    ]
    for turn, how in ((1, "above"), (-1, "below")):
        if 2 * signs.count(turn) > len(signs):
            return (
                f"At {of_all(signs.count(turn), len(signs), 'position')} the bag's centred R² for "
                f"the heads' output is {how} {LOW:g} with the best kernel and scale "
                "(1 is perfect, 0 no better than the mean)."
            )
    return ""


def _kernel(result: Result) -> str:
    kernel = result.values["kernel"]
    return (
        f"The kernel of the bag spreads over {brief(float(effective_tokens(kernel)))} effective "
        f"tokens, of {len(kernel)} that position {len(kernel) - 1} sees."
    )


def _tokens(result: Result) -> str:
    values = result.values["contribution"]
    values = values[np.isfinite(values)]
    spread = float(values.std()) if values.size else 0.0
    if spread <= NEGLIGIBLE * np.abs(values).max(initial=0.0):
        return ""
    up, down = (float(end) / spread for end in (values.max() - values.mean(),
                                                values.mean() - values.min()))  # fmt: skip
    return (
        f"The strongest token for neuron {param(result, 'neuron')} adds {brief(up)} standard "
        f"deviations more than the mean token, the strongest against it {brief(down)} less."
    )


def _related(result: Result) -> str:
    number, related = int(param(result, "neuron")), np.abs(result.values["related"])
    related[number] = np.nan
    if not np.isfinite(related).any():
        return ""
    other = int(np.nanargmax(related))
    reads, writes = (float(result.values[name][other]) for name in ("related", "output_cosine"))
    how = "the same" if reads > 0 else "the opposite"
    return (
        f"Of all others, neuron {other} reads most nearly {how} contexts as neuron {number} "
        f"(correlation {brief(reads)}); the cosine of what they write is {brief(writes)}."
    )


def _trace(result: Result) -> str:
    fit, sign_right = (float(result.values[name]) for name in ("r2", "sign_agreement"))
    if math.isnan(fit) or math.isnan(sign_right):
        return ""
    better = "better" if fit > 0 else "no better"
    return (
        f"On this text, neuron {param(result, 'neuron')} is predicted {better} than by its mean "
        f"(R² {brief(fit)}; 1 is perfect), and with the right sign at {brief(sign_right)} of the "
        "positions."
    )


def _latents(result: Result) -> str:
    shares = np.sort(result.values["share"])[::-1]
    if not shares.size or math.isnan(float(shares[0])):
        return ""
    first = brief(shares[0])
    who = f"neuron {param(result, 'neuron')}'s variance over tokens (limit {HALF:g})"
    if shares[0] >= HALF:
        return f"One sub-latent explains {first} of {who}: the neuron mostly reads one context."
    return f"The largest sub-latent explains only {first} of {who}: the neuron reads a mixture."


def _nearest(result: Result) -> str:
    if not (words := result.words("words")):
        return ""
    cosine, plain = (float(result.values[name][0]) for name in ("cosine", "plain_cosine"))
    return (
        f"In the bag, “{visible(words[0])}” is nearest to “{visible(param(result, 'word'))}”: the "
        f"cosine is {brief(cosine)}, and {brief(plain)} between their plain embeddings."
    )


def _scores(result: Result) -> str:
    if (top := most(result, "score")) is None:
        return ""
    return (
        f"Of {len(result.values['score']):,} neurons, the words favour neuron {top[0]} most: they "
        f"add {brief(result.values['score'][top])} standard deviations more than the mean token."
    )


VIEWS: Views = {
    "contextual-neurons": (
        View("drive_share []", says=_neuron),
        View(
            "drive_share r2 drive sign_agreement [neuron], top [neuron rank]",
            neurons,
            "Neurons that the bag of tokens drives",
            reading="One mark per neuron of layer 0. To the right: the bag explains much of the "
            "neuron's variance. Up: all parts together predict the neuron's pre-activation well, "
            "mostly through the current token. (The table shows the R² of the bag alone.) "
            "Triangles stand for neurons below the lower edge of the figure. The ring marks the "
            "neuron shown below; a row of the table selects another.",
        ),
        heads_view("drive_share", "share of variance from the bag", HALF),
        View(
            "bag_centred_r2 [variant query]",
            quality,
            "The bag against the heads' output",
            says=_quality,
            reading="How well the bag predicts the contextual heads' output, by position. At 1 the "
            "prediction is perfect; at 0 it is no better than the mean over windows. The lines "
            "differ in their approximations: one kernel for all heads or one for each, one scale "
            "of the norm or one for each token. The centred R² is stricter than the cosine: an "
            "offset common to both makes the cosine large, but not R². A click on a name in the "
            "legend shows or hides its line.",
        ),
        View("kernel [key], heads [chosen]", mean_kernel),
        View(
            "kernel [key]",
            says=_kernel,
            reading="The weight of a token in the bag, by how far back the token stands. The "
            "weight is the contextual heads' mean kernel for the destination token.",
        ),
    ),
    "neuron": (
        View(
            "contribution [token], top_value bottom_value [rank]",
            contributions,
            "Neuron {neuron}: contributions of tokens",
            reading="What each token adds to the neuron's pre-activation while it is in the bag. "
            "Look at both ends, and at the middle, where most tokens of a text lie.",
        ),
        View("contribution [token]", says=_tokens),
        View(
            "related output_cosine [neuron]",
            relatives,
            "Relatives of neuron {neuron}",
            says=_related,
            reading="One mark per other neuron. Right: it reads the same contexts as this neuron; "
            "left: the opposite ones. Top: it writes the same as this neuron; bottom: the "
            "opposite. Neurons at the lower right cancel this one.",
        ),
    ),
    "neuron-trace": (
        View(
            "true predicted bag position others direct contribution [pos]",
            along_text,
            reading="The neuron's pre-activation along one text, computed by the model and "
            "predicted from the bag. It fires above 0. The colour of each token shows which way it "
            "moves the neuron.",
        ),
        View("r2 sign_agreement []", says=_trace),
    ),
    "neuron-latents": (
        View("share [latent], rest [], top_words [latent rank]", latents),
        View(
            "share [latent]",
            says=_latents,
            reading="Groups of tokens that vary together in the bag, and the share of the neuron "
            "that each explains. A neuron with one large share reads one context; with several, a "
            "mixture.",
        ),
    ),
    "extended-embedding": (
        View(
            "cosine plain_cosine [rank]",
            nearest,
            says=_nearest,
            reading="The tokens whose traces in the bag are most similar to this token's trace.",
        ),
    ),
    "word-neurons": (
        View("score [neuron], words [word]", ranked_scores),
        View(
            "score [neuron]",
            says=_scores,
            reading="How much the words add to a neuron, compared with all tokens. Positive: they "
            "make it fire.",
        ),
    ),
}
