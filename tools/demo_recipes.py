"""The demo models: their shapes, how they are built, and how they are optimised."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

LONGEST_WAVE = 64.0
POSITION_SIZE = 0.05
START = 0
START_TOKEN = "<|endoftext|>"


@dataclass(frozen=True)
class Recipe:
    """What is trained, and on which windows; all times are shares of the whole training.

    `random_share` of the windows are random tokens repeated, `repeated_share` text repeated, the
    others text as it is. `rate` multiplies all learning rates. With `sinusoids` W_pos begins as
    sines and cosines of the position, which make the previous one easy to find.

    With `key_heads` the architecture is Llama's: rotary positions, so many heads of keys and
    values, all heads `head_width` wide, MLPs of `inner` neurons. `checkpoints` are the steps that
    are kept on the way, if any are.

    With `waves`, W_pos is kept smooth: only so many of its slowest waves are left. `mixed` is
    whether the matrices are multiplied in 16 bits, which is slower where they are narrow. `note` is
    said on the card.
    """

    name: str
    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int
    mlp: bool
    minutes: float
    short_window: int
    short_share: float
    clean_share: float
    tokens_per_step: int = 2048
    random_share: float = 0.30
    repeated_share: float = 0.15
    rate: float = 1.0
    sinusoids: bool = False
    waves: int | None = None
    mixed: bool = True
    note: str = ""
    key_heads: int = 0
    head_width: int = 0
    inner: int = 0
    checkpoints: tuple[int, ...] = ()

    def window(self, progress: float) -> int:
        """Window length at a point of the training, in tokens."""
        return self.short_window if progress < self.short_share else self.context


ROUGH = Recipe(
    name="demo-gpt2-rough",
    layers=4,
    heads=8,
    width=192,
    context=512,
    vocabulary=4096,
    mlp=True,
    minutes=70,
    short_window=128,
    short_share=0.6,
    clean_share=0.5,
)

ATTENTION_ONLY = Recipe(
    name="demo-attn-2l",
    layers=2,
    heads=8,
    width=256,
    context=128,
    vocabulary=1024,
    mlp=False,
    minutes=35,
    short_window=128,
    short_share=0.0,
    clean_share=0.0,
)

ROTARY = Recipe(
    name="demo-rotary",
    layers=4,
    heads=8,
    width=160,
    context=512,
    vocabulary=1024,
    mlp=True,
    minutes=24,
    short_window=128,
    short_share=0.6,
    clean_share=0.0,
    key_heads=4,
    head_width=24,
    inner=256,
    checkpoints=(256, 512, 1024, 1448),
    note="Kept at checkpoints on the way (`--checkpoints`; `schedule.json` names them). L1H7 looks "
    "one token back by its short waves alone: without them its kernel is another one. In L2 and L3 "
    "induction heads look where content decides, with kernels that are nearly uniform. The figures "
    "below are those of the last checkpoint.",
)

RECIPES = {
    "demo-gpt2-rough": ROUGH,
    "demo-gpt2": replace(
        ROUGH,
        name="demo-gpt2",
        minutes=45,
        waves=24,
        note="The steps are those of two stages in one folder: `demo-gpt2-rough`, 70 minutes, and "
        "this recipe with `--resume`, which takes out all but the 24 slowest waves of `W_pos`. "
        "Neighbouring positions are nearly alike, as in GPT-2, so its previous-token heads cannot "
        "tell them apart by position: they attend less to their own token instead.",
    ),
    "demo-attn-2l": ATTENTION_ONLY,
    "demo-training": replace(
        ATTENTION_ONLY,
        name="demo-training",
        minutes=25,
        checkpoints=(0, 256, 1024, 2048, 2896, 3444, 4096, 4871, 5793, 8192),
        note="Kept at checkpoints on the way (`--checkpoints`; `schedule.json` names them), which "
        "is what it is for; the figures below are those of the last one.",
    ),
    "demo-rotary": ROTARY,
}


class NoMLP(nn.Module):
    """Stands in for a block's MLP in an attention-only model: adds nothing to the stream."""

    def forward(self, x: Tensor) -> Tensor:
        """Zeros of the input's shape."""
        return torch.zeros_like(x)


def build_model(recipe: Recipe) -> PreTrainedModel:
    """A freshly initialised model of the recipe's shape."""
    return _build_rotary(recipe) if recipe.key_heads else _build_learned(recipe)


def _build_rotary(recipe: Recipe) -> LlamaForCausalLM:
    """Llama's architecture: rotary positions, grouped heads."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.width,
            intermediate_size=recipe.inner,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_heads,
            head_dim=recipe.head_width,
            max_position_embeddings=recipe.context,
            tie_word_embeddings=True,
            bos_token_id=START,
            eos_token_id=START,
            attn_implementation="sdpa",
        )
    )


def _build_learned(recipe: Recipe) -> GPT2LMHeadModel:
    """GPT-2's architecture: learned positions, without MLPs if the recipe says so."""
    config = GPT2Config(
        vocab_size=recipe.vocabulary,
        n_positions=recipe.context,
        n_embd=recipe.width,
        n_layer=recipe.layers,
        n_head=recipe.heads,
        bos_token_id=START,
        eos_token_id=START,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config)
    if recipe.sinusoids:
        begin_as_sinusoids(model.transformer.wpe.weight)
    if not recipe.mlp:
        for block in model.transformer.h:
            block.mlp = NoMLP()
            block.ln_2 = nn.Identity()
    return model


@torch.no_grad()
def begin_as_sinusoids(rows: Tensor) -> None:
    """Fill W_pos [position, width] with waves from 2 pi tokens long to `LONGEST_WAVE` times that.

    They are those of Vaswani et al., "Attention is all you need", in a shorter range.
    """
    positions, width = rows.shape
    pace = LONGEST_WAVE ** -torch.linspace(0, 1, width // 2)
    angles = torch.arange(positions)[:, None] * pace
    rows.copy_(POSITION_SIZE * torch.cat([angles.sin(), angles.cos()], dim=1))


def build_optimizers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for the rest; W_pos, if any, is its second group."""
    learned = isinstance(model, GPT2LMHeadModel)
    positions = [model.transformer.wpe.weight] if learned else []
    blocks = model.transformer.h if learned else model.model.layers
    matrices = [p for p in blocks.parameters() if p.ndim == 2]
    taken = {id(p) for p in matrices + positions}
    rest = [p for p in model.parameters() if id(p) not in taken]
    groups = [{"params": rest}, {"params": positions}]
    adam = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    return [torch.optim.Muon(matrices, lr=0.01), adam]


def set_rates(
    optimizers: list[torch.optim.Optimizer], recipe: Recipe, step: int, progress: float
) -> None:
    """100 steps of warm-up, then the full rate, then a linear fall over the second half.

    Each row of the positional embedding sees few tokens a step, and gathers noise. Over the last
    `clean_share` of the training it learns at half the rate and decays: what the heads use is
    restored by the gradient, what they do not use fades.
    """
    share = recipe.rate * max(min(1.0, (step + 1) / 100, 2 * (1 - progress)), 0.0)
    muon, adam = optimizers
    muon.param_groups[0]["lr"] = 0.01 * share
    rest, positions = adam.param_groups
    rest["lr"] = 3e-3 * share
    clean = progress > 1 - recipe.clean_share
    positions["lr"] = rest["lr"] / 2 if clean else rest["lr"]
    positions["weight_decay"] = 1.0 if clean else 0.0
