"""The words for the figures of interventions."""

from pages.shared.cards.explained import explained

PATTERNS = explained(
    "intervention",
    "The selected head's attention on this prompt: clean, changed, and the difference (orange: "
    "more attention after the change, blue: less).",
    "clean",
    "changed",
    "difference",
)

BARS = explained(
    "intervention",
    "What the model expects after the prompt, before and after the change: the six likeliest "
    "tokens of each.",
    "clean_probability",
    "changed_probability",
)

LOSS = explained(
    "intervention",
    "Above, how badly each token of the prompt was predicted; below, how far the whole prediction "
    "moved. Peaks show where the change matters.",
    "clean_loss",
    "changed_loss",
    "kl",
)

MASSES = explained(
    "intervention",
    "One cell per head: by how much its mean attention to the previous token on this prompt "
    "changed. Click a cell to look at that head.",
    "previous_mass_change",
)

AVERAGING = explained(
    "averaging",
    "The loss on windows of the corpus when positions are averaged in groups of growing size; bars "
    "are one standard error of the difference from the clean run, paired over windows. GPT-2 small "
    "is hardly affected by groups of 5 to 20.",
    "loss",
    "loss_change",
)
