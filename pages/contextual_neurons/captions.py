"""The words for the figures of contextual neurons."""

from pages.shared.cards.explained import explained

QUALITY = explained(
    "contextual-neurons",
    "How well the bag predicts the contextual heads' output, by position. At 1 the prediction is "
    "perfect; at 0 it is no better than the mean over windows. The lines differ in their "
    "approximations: one kernel for all heads or one for each, one scale of the norm or one for "
    "each token. The centred R² is stricter than the cosine: an offset common to both makes the "
    "cosine large, but not R². A click on a name in the legend shows or hides its line.",
)

KERNEL = explained(
    "contextual-neurons",
    "The weight of a token in the bag, by how far back the token stands. The weight is the "
    "contextual heads' mean kernel for the destination token.",
)

NEURONS = explained(
    "contextual-neurons",
    "One mark per neuron of layer 0. To the right: the bag explains much of the neuron's "
    "variance. Up: all parts together predict the neuron's pre-activation well, mostly through "
    "the current token. (The table shows the R² of the bag alone.) Triangles stand for neurons "
    "below the lower edge of the figure. The ring marks the neuron shown below; a row of the "
    "table selects another.",
)

WORDS = explained(
    "word-neurons",
    "How much the words add to a neuron, compared with all tokens. Positive: they make it fire.",
)

TOKENS = explained(
    "neuron",
    "What each token adds to the neuron's pre-activation while it is in the bag. Look at both "
    "ends, and at the middle, where most tokens of a text lie.",
)

RELATED = explained(
    "neuron",
    "One mark per other neuron. Right: it reads the same contexts as this neuron; left: the "
    "opposite ones. Top: it writes the same as this neuron; bottom: the opposite. Neurons at the "
    "lower right cancel this one.",
)

TRACE = explained(
    "neuron-trace",
    "The neuron's pre-activation along one text, computed by the model and predicted from the bag. "
    "It fires above 0. The colour of each token shows which way it moves the neuron.",
)

LATENTS = explained(
    "neuron-latents",
    "Groups of tokens that vary together in the bag, and the share of the neuron that each "
    "explains. A neuron with one large share reads one context; with several, a mixture.",
)

EMBEDDING = explained(
    "extended-embedding",
    "The tokens whose traces in the bag are most similar to this token's trace.",
)
