"""The models that are listed first, and those that come with the project."""

from dataclasses import dataclass
from pathlib import Path

DEMO = Path(__file__).resolve().parents[1] / "demo"
BUNDLED_MODELS = {
    name: DEMO / name
    for name in ("demo-gpt2", "demo-attn-2l", "demo-rotary", "gpt2-small-layer0", "demo-training")
}
"""The directories of the models that come with the project, by name."""


@dataclass(frozen=True)
class ModelEntry:
    """A model in the list of models, with its description.

    ``note`` is a caveat shown with the model's numbers.
    """

    name: str
    size: str
    positions: str
    good_for: str
    note: str = ""


CURATED: tuple[ModelEntry, ...] = (
    ModelEntry(
        "smollm2-135m-instruct-q4",
        "135 M",
        "rotary",
        "a first look, offline: 270 heads of a real model",
    ),
    ModelEntry(
        "demo-gpt2",
        "2.7 M",
        "learned, smooth",
        "a first look that computes live, offline: every kind of head and a helix in 4 layers",
    ),
    ModelEntry(
        "demo-attn-2l", "0.9 M", "learned", "induction in two attention-only layers, offline"
    ),
    ModelEntry(
        "gpt2-small-layer0",
        "3.2 M",
        "learned",
        "real weights, offline: GPT-2's positions and first heads",
        "The positional embeddings and layer 0's attention are GPT-2 small's own; token embeddings "
        "are random, so what depends on content says nothing about GPT-2.",
    ),
    ModelEntry(
        "demo-rotary", "1.0 M", "rotary", "rotary positions, offline: a head of short waves alone"
    ),
    ModelEntry(
        "demo-training", "0.8 M", "learned", "heads over training, offline: induction as it forms"
    ),
    ModelEntry("gpt2", "124 M", "learned", "the posts' model: heat map, helix, contextual heads"),
    ModelEntry(
        "roneneldan/TinyStories-Instruct-33M",
        "68 M",
        "learned, local layers",
        "the posts' second heat map",
    ),
    ModelEntry(
        "NeelNanda/Attn_Only_2L512W_C4_Code",
        "52 M",
        "learned",
        "the posts' induction experiments (attn-only-2l)",
    ),
    ModelEntry(
        "HuggingFaceTB/SmolLM2-135M", "135 M", "rotary", "a small rotary model, grouped queries"
    ),
    ModelEntry(
        "EleutherAI/pythia-70m", "70 M", "rotary (partial)", "rotary, with training checkpoints"
    ),
    ModelEntry(
        "stanford-crfm/alias-gpt2-small-x21",
        "124 M",
        "learned",
        "GPT-2 small with training checkpoints",
    ),
    ModelEntry("facebook/opt-125m", "125 M", "learned", "OPT: learned positions, start token"),
)
