"""The words for the figures of interventions."""

from pages.shared.cards.explained import PICK, explained

EFFECTS = explained(
    "patch-heads",
    "One cell per head: how much of the difference between the prompts it carries, put alone into "
    "the other run (orange: towards the other prompt; blue: away from it). Cells marked ≈ are "
    f"first-order estimates, which exact effects replace row by row. {PICK}",
    "effect",
    "attribution",
)

POSITIONS = explained(
    "patch-positions",
    "On the left all positions at once: the whole output, the pattern alone (where it looks), the "
    "values alone (what it finds). On the right one position at a time; where the prompts differ, "
    "both tokens are named.",
    "effect",
    "attribution",
    "part_effect",
)

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
    "The next token after the prompt: the six likeliest tokens, clean and changed.",
    "clean_probability",
    "changed_probability",
)

LOSS = explained(
    "intervention",
    "Above: the loss at each token of the prompt. Below: the KL divergence of the next-token "
    "distributions. Peaks show where the change matters.",
    "clean_loss",
    "changed_loss",
    "kl",
)

MASSES = explained(
    "intervention",
    "One cell per head: the change of its mean attention to the previous token on this prompt. "
    f"{PICK}",
    "previous_mass_change",
)

AVERAGING = explained(
    "averaging",
    "The loss on windows of the corpus if positions are averaged in groups of growing size; bars "
    "are one standard error of the difference from the clean run, paired over windows. Groups of 5 "
    "to 20 hardly affect GPT-2 small.",
    "loss",
    "loss_change",
)

ABLATED = explained(
    "ablate-heads",
    "The rise of the loss at each position if these heads are ablated, over windows of text; clean "
    "and ablated runs are paired. The band is one standard error.",
    "loss_change",
    "position_loss_change",
)

ABLATED_INDUCTION = explained(
    "ablate-heads",
    "Random tokens, repeated once: the heads whose induction score changes most. A head in a later "
    "layer that loses its score needs the ablated ones.",
    "induction_change",
    "copy_loss_change",
)
