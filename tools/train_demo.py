"""Train a bundled demo model: `python tools/train_demo.py demo-attn-2l --corpus DIR --out DIR`.

One CPU thread is enough. Learning rate and window length follow the clock, so that the training
ends on time. With `--checkpoints` intermediate weights are kept, each in a directory of `--out`. At
the end the model is measured and its model card written.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from poskernel_core.forward.attn_only import NoMlp
from tools.demo_texts import training_pieces
from tools.measure_demo import write_card

START, START_TOKEN = 0, "<|endoftext|>"
TOKENS_PER_STEP = 2048
LOG_STEPS = 200
SHORT_WINDOW = 128
REPEATED_SHARE, RANDOM_SHARE = 0.15, 0.30
"""Fractions of windows with repeated text and with repeated random tokens; the rest is text."""
SHORTEST_PERIOD, MIN_TOKENS = 8, 512
EASING = 0.2
"""Fraction of the training over which fast waves are removed from W_pos, the fastest first."""
WEIGHTS, SCHEDULE = "model.safetensors", "schedule.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
KEPT = "Kept at checkpoints on the way (`--checkpoints`; `schedule.json` names them)"


@dataclass(frozen=True)
class Recipe:
    """The architecture and training of a model; shares are fractions of the whole training.

    Attributes:
        short_share: for how long windows are short.
        clean_share: for how long, at the end, unused parts of W_pos decay.
        mlp: whether blocks have MLPs; without them the model is attention-only.
        waves: number of slowest waves that are kept in W_pos, to make it smooth; None for all.
        llama: fields of a Llama configuration; if given, the architecture is Llama's, with rotary
            positions.
        checkpoints: intermediate steps to keep.
        note: a remark for the model card.
    """

    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int
    minutes: float
    short_share: float = 0.0
    clean_share: float = 0.0
    mlp: bool = True
    waves: int | None = None
    llama: dict[str, int] = field(default_factory=dict)
    checkpoints: tuple[int, ...] = ()
    note: str = ""


ROUGH = Recipe(4, 8, 192, 512, 4096, minutes=70, short_share=0.6, clean_share=0.5)
ATTENTION_ONLY = Recipe(2, 8, 256, 128, 1024, minutes=35, mlp=False)
RECIPES = {
    "demo-gpt2-rough": ROUGH,
    "demo-gpt2": replace(
        ROUGH,
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
        minutes=25,
        checkpoints=(0, 256, 1024, 2048, 2896, 3444, 4096, 4871, 5793, 8192),
        note=f"{KEPT}, which is what it is for; the figures below are those of the last one.",
    ),
    "demo-rotary": replace(
        ATTENTION_ONLY,
        layers=4,
        width=160,
        context=512,
        mlp=True,
        minutes=24,
        short_share=0.6,
        llama={"num_key_value_heads": 4, "head_dim": 24, "intermediate_size": 256},
        checkpoints=(256, 512, 1024, 1448),
        note=f"{KEPT}. L1H7 looks one token back by its short waves alone: without them its kernel "
        "is another one. In L2 and L3 induction heads look where content decides, with kernels "
        "that are nearly uniform. The figures below are those of the last checkpoint.",
    ),
}


def build_model(recipe: Recipe) -> PreTrainedModel:
    """A newly initialised model: Llama's architecture, or GPT-2's with or without MLPs."""
    tokens = {"vocab_size": recipe.vocabulary, "bos_token_id": START, "eos_token_id": START}
    sizes = {"hidden_size": recipe.width, "max_position_embeddings": recipe.context}
    sizes |= {"num_hidden_layers": recipe.layers, "num_attention_heads": recipe.heads}
    if recipe.llama:
        config = LlamaConfig(tie_word_embeddings=True, **tokens, **sizes, **recipe.llama)
        return LlamaForCausalLM(config)
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(**tokens, **sizes, **dropouts))
    for block in model.transformer.h if not recipe.mlp else ():
        block.mlp, block.ln_2 = NoMlp(), nn.Identity()
    return model


def build_optimizers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for the rest; AdamW's second group is W_pos, if any."""
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
    """100 steps of warm-up, then the full rate, then a linear decrease over the second half.

    Each row of the positional embedding sees few tokens per step and accumulates noise. Over the
    last `clean_share` of the training the embedding learns at half the rate with weight decay: the
    gradient restores what the heads use, and the rest decays.
    """
    share = max(min(1.0, (step + 1) / 100, 2 * (1 - progress)), 0.0)
    muon, adam = optimizers
    muon.param_groups[0]["lr"] = 0.01 * share
    rest, positions = adam.param_groups
    rest["lr"] = 3e-3 * share
    clean = progress > 1 - recipe.clean_share
    positions["lr"] = rest["lr"] / 2 if clean else rest["lr"]
    positions["weight_decay"] = 1.0 if clean else 0.0


@torch.no_grad()
def smooth_positions(rows: Tensor, least: int, progress: float) -> None:
    """Remove the fast waves from the embeddings [position, width]: those due at this progress.

    A small model finds its previous token by embeddings that alternate from one position to the
    next. GPT-2 does not: its positions form a smooth helix, and heads tell neighbours apart by the
    causal mask. Without the fast waves, a small model has to do the same. The first row belongs to
    the start token and is not changed.
    """
    left = max(0.0, 1 - progress / EASING)
    waves = least + round((len(rows) - 1 - least) * left**3)
    slow = scipy.fft.dct(rows[1:].numpy(), axis=0)[:waves]
    rows[1:] = torch.from_numpy(scipy.fft.idct(slow, n=len(rows) - 1, axis=0))


class Windows:
    """Draws batches of windows; each begins with the start token.

    `stream` holds the text as token ids, [tokens].
    """

    def __init__(self, stream: np.ndarray, vocabulary: int, seed: int) -> None:
        self._stream, self._vocabulary = stream, vocabulary
        self._rng = np.random.default_rng(seed)

    def batch(self, count: int, length: int) -> np.ndarray:
        """Token ids of `count` windows, [count, length]."""
        windows = np.full((count, length), START, dtype=np.int64)
        for window in windows:
            window[1:] = self._body(length - 1)
        return windows

    def offsets(self, count: int, room: int) -> np.ndarray:
        """First positions of `count` windows, [count]: a quarter are 0, the others up to `room`."""
        drawn = self._rng.integers(0, room + 1, size=count)
        return np.where(self._rng.random(count) < 0.25, 0, drawn)

    def _body(self, length: int) -> np.ndarray:
        kind = self._rng.random()
        if kind >= RANDOM_SHARE + REPEATED_SHARE:
            return self._text(length)
        period = self._log_uniform(SHORTEST_PERIOD, length // 2)
        if kind >= RANDOM_SHARE:
            return np.resize(self._text(period), length)
        # Ids run from frequent to rare tokens; with a low bound, copying is learned sooner.
        bound = self._log_uniform(MIN_TOKENS, self._vocabulary)
        return np.resize(self._rng.integers(START + 1, bound, size=period), length)

    def _text(self, length: int) -> np.ndarray:
        first = self._rng.integers(0, len(self._stream) - length)
        return self._stream[first : first + length]

    def _log_uniform(self, low: int, high: int) -> int:
        return round(math.exp(self._rng.uniform(math.log(low), math.log(high))))


def prepare_tokenizer(texts: list[str], recipe: Recipe, out: Path) -> np.ndarray:
    """Encode the texts with the byte-level BPE tokenizer in `out`, training it if there is none.

    The start token has id 0. The texts become one stream of token ids, [tokens], with a blank line
    between texts.
    """
    file = out / TOKENIZER[0]
    if not file.is_file():
        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(
            texts, recipe.vocabulary, 0, show_progress=False, special_tokens=[START_TOKEN]
        )
        tokenizer.save(str(file))
        special = {"bos_token": START_TOKEN, "eos_token": START_TOKEN}
        PreTrainedTokenizerFast(
            tokenizer_file=str(file), model_max_length=recipe.context, **special
        ).save_pretrained(out)
    encoded = Tokenizer.from_file(str(file)).encode_batch_fast([text + "\n\n" for text in texts])
    return np.concatenate([np.asarray(each.ids, dtype=np.int32) for each in encoded])


def save_model(
    model: PreTrainedModel, recipe: Recipe, out: Path, steps: int, dtype: torch.dtype
) -> None:
    tensors = {
        name: tensor.detach().to(dtype).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the token embedding
    }
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt", "steps": str(steps)})
    if recipe.mlp:
        model.config.architectures = [type(model).__name__]
        model.config.dtype = "float32"
        model.config.save_pretrained(out)
        return
    config = {  # in TransformerLens' format
        "model_type": "attn-only",
        "n_layers": recipe.layers,
        "n_heads": recipe.heads,
        "d_model": recipe.width,
        "d_head": recipe.width // recipe.heads,
        "n_ctx": recipe.context,
        "d_vocab": recipe.vocabulary,
        "attn_only": True,
        "normalization_type": "LN",
        "positional_embedding_type": "standard",
        "tied_embeddings": True,
        "note": "state dict in GPT-2 names (transformer.wte, wpe, h.{l}.ln_1, "
        "h.{l}.attn.c_attn, c_proj, ln_f); ln_2 unused",
    }
    write_json(out / "config.json", config)


def keep_checkpoint(model: PreTrainedModel, recipe: Recipe, out: Path, step: int) -> Path:
    """Write a bfloat16 checkpoint below `out` and list it in the schedule; return its folder."""
    folder = out / f"step-{step}"
    folder.mkdir(exist_ok=True)
    for name in TOKENIZER:
        text = json.loads((out / name).read_text(encoding="utf-8"))
        compact = json.dumps(text, ensure_ascii=False, separators=(",", ":"))
        (folder / name).write_text(compact + "\n", encoding="utf-8")
    save_model(model, recipe, folder, step, torch.bfloat16)
    file = out / SCHEDULE
    kept = json.loads(file.read_text(encoding="utf-8"))["checkpoints"] if file.is_file() else {}
    schedule = {"tokens_per_step": TOKENS_PER_STEP, "checkpoints": kept | {folder.name: step}}
    write_json(file, schedule)
    return folder


def write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


@dataclass
class Run:
    """A training in progress."""

    recipe: Recipe
    model: PreTrainedModel
    windows: Windows
    steps: int

    def step(self, optimizers: list[torch.optim.Optimizer], progress: float) -> float:
        """Take one step on a new batch; return its loss in nats per token.

        One token more than the window is drawn, so that the last position is trained too.
        """
        length = self.recipe.context
        if progress < self.recipe.short_share:
            length = min(SHORT_WINDOW, length)
        count = TOKENS_PER_STEP // length
        tokens = torch.from_numpy(self.windows.batch(count, length + 1))
        first = torch.from_numpy(self.windows.offsets(count, self.recipe.context - length))
        positions = first[:, None] + torch.arange(length)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(tokens[:, :-1], position_ids=positions, use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if self.recipe.waves is not None:
            smooth_positions(self.model.transformer.wpe.weight, self.recipe.waves, progress)
        self.steps += 1
        return loss.item()

    def train(self, minutes: float, checkpoints: Path | None) -> None:
        optimizers = build_optimizers(self.model)
        began, first, progress = time.monotonic(), self.steps, 0.0
        while progress < 1:
            if checkpoints and self.steps in self.recipe.checkpoints:
                keep_checkpoint(self.model, self.recipe, checkpoints, self.steps)
            set_rates(optimizers, self.recipe, self.steps - first, progress)
            loss = self.step(optimizers, progress)
            progress = (time.monotonic() - began) / (60 * minutes)
            if self.steps % LOG_STEPS == 0:
                print(f"step {self.steps} ({progress:.0%}) loss {loss:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=RECIPES)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .jsonl or .txt files")
    parser.add_argument("--out", type=Path, required=True, help="directory for the model")
    parser.add_argument("--minutes", type=float, help="length of the training; default: recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the weights in --out")
    parser.add_argument("--checkpoints", action="store_true", help="keep the steps of the recipe")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    recipe, out = RECIPES[args.model], args.out
    out.mkdir(parents=True, exist_ok=True)
    if not args.resume:
        (out / TOKENIZER[0]).unlink(missing_ok=True)
    pieces = list(training_pieces(args.corpus))
    stream = prepare_tokenizer([piece.text for piece in pieces], recipe, out)
    print(f"{len(pieces)} texts, {len(stream):,} tokens", flush=True)
    windows = Windows(stream, recipe.vocabulary, args.seed)
    run = Run(recipe, build_model(recipe), windows, 0)
    if args.resume:
        run.model.load_state_dict(load_file(out / WEIGHTS), strict=False)  # all but the tied head
        with safe_open(out / WEIGHTS, framework="pt") as weights:
            run.steps = int(weights.metadata()["steps"])
    run.train(args.minutes or recipe.minutes, out if args.checkpoints else None)
    if args.checkpoints:
        measured = keep_checkpoint(run.model, recipe, out, run.steps)
    else:
        save_model(run.model, recipe, measured := out, run.steps, torch.float32)
    about = {"name": args.model, "steps": run.steps, "step_tokens": TOKENS_PER_STEP}
    about |= {"repeated": REPEATED_SHARE, "random": RANDOM_SHARE}
    write_card(out, measured, pieces, asdict(recipe) | about)


if __name__ == "__main__":
    main()
