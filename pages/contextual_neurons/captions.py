"""The words for the figures of contextual neurons."""

from pages.shared.cards.explained import explained

QUALITY = explained(
    "contextual-neurons",
    "How well the bag predicts the contextual heads' output, by position. 1 is perfect; at 0 "
    "the mean over windows predicts as well. The lines differ in their approximations: one kernel "
    "for all heads or one for each, one scale of the norm or one for each token. The centred R² is "
    "stricter than the cosine, which a common offset makes large. A click on a name in the legend "
    "shows or hides its line.",
)

KERNEL = explained(
    "contextual-neurons",
    "The weight of a token in the bag, by how far back it stands: the contextual heads' mean "
    "kernel for the destination token.",
)

NEURONS = explained(
    "contextual-neurons",
    "One mark per neuron of layer 0. To the right: the bag explains much of the neuron's variance. "
    "Up: all parts together predict its pre-activation well, mostly through the current token; "
    "the table shows the bag's own R². Triangles lie below the figure. The ring marks the neuron "
    "shown below; a row of the table selects another.",
)

WORDS = explained(
    "word-neurons",
    "How much the words add to a neuron, compared with all tokens. Positive: they make it fire.",
)

TOKENS = explained(
    "neuron",
    "What each token adds to the neuron's pre-activation while it is in the bag. Look at both "
    "ends, and at the middle: most tokens of a text are there.",
)

RELATED = explained(
    "neuron",
    "Every other neuron. To the right it reads the same contexts, to the left the opposite; at the "
    "top it writes the same, at the bottom the opposite. Lower right: neurons that cancel.",
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
    "extended-embedding", "The tokens that leave the most similar trace in the bag."
)
