"""The words of the page on contextual neurons; formulas are those of the definitions."""

from pages.shared.cards.explained import explained

QUALITY = explained(
    "contextual-neurons",
    "How well the bag predicts what the contextual heads actually write, by position. 1 is "
    "perfect; at 0 the mean over windows predicts as well. The lines differ in what is taken as "
    "equal: one kernel for all heads or one for each, one scale of the norm or one for each "
    "token. What all heads have in common makes the cosine large; the centred R² is the stricter "
    "measure. A click on a name in the legend shows or hides its line.",
)

KERNEL = explained(
    "contextual-neurons",
    "How much of each token stays in the bag, by how far back it stands: the mean kernel of the "
    "contextual heads for the destination token.",
)

NEURONS = explained(
    "contextual-neurons",
    "One mark per neuron of layer 0. To the right: the bag accounts for much of the neuron's "
    "variation. Up: its pre-activation is predicted without running the model, mostly by the "
    "current token; the table shows the bag's own R². Triangles lie below the figure. The ring is "
    "the neuron shown below; a row of the table selects another.",
)

WORDS = explained(
    "word-neurons",
    "How far the words stand out among all tokens in what they add to a neuron. Positive: they "
    "push it towards firing.",
)

TOKENS = explained(
    "neuron",
    "What one token adds to the neuron's pre-activation while it is in the bag, for every token. "
    "Read both ends, and do not forget the middle: most of a text's tokens are there.",
)

RELATED = explained(
    "neuron",
    "Every other neuron: to the right it reads the same contexts, to the left the opposite; up it "
    "writes the same, down the opposite. Lower right: two neurons that cancel.",
)

TRACE = explained(
    "neuron-trace",
    "The neuron's pre-activation along one text: what the model computes, and what the bag "
    "predicts. It fires above 0. Behind each token its colour shows which way it moves the neuron.",
)

LATENTS = explained(
    "neuron-latents",
    "Groups of tokens that vary together in the bag, and how much of the neuron each explains. "
    "A neuron with one large share reads one context; one with several reads a mixture.",
)

EMBEDDING = explained(
    "extended-embedding", "The tokens that leave the most similar trace in the bag."
)
