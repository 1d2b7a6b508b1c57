"""Train a bundled demo model: `python tools/train_demo.py demo-attn-2l --corpus DIR --out DIR`.

One thread of a processor is enough. The rate and the window length follow the clock, so that the
training ends when its minutes are over; what is on disk at any time is whole and loads. With
`--checkpoints` the weights are kept on the way, a directory each, in `--out`.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from demo_card import write_card
from demo_checkpoints import keep_checkpoint, last_checkpoint
from demo_files import load_model, load_tokenizer, save_model, save_tokenizer, trained_steps
from demo_measures import induction, previous_token, repeated_random
from demo_recipes import RECIPES, Recipe, build_model, build_optimizers, set_rates
from demo_smooth import smooth_positions, waves_kept
from demo_windows import Windows, encode, train_tokenizer
from holdout import Piece, training_pieces
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

LOG_STEPS = 200
SAVE_SECONDS = 180


@dataclass
class Run:
    """One training under way."""

    recipe: Recipe
    model: PreTrainedModel
    windows: Windows
    out: Path
    minutes: float
    device: str
    steps: int
    checkpoints: bool = False


def main() -> None:
    """Read the texts, train the tokenizer and the model, measure, and write the card."""
    args = parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    recipe = RECIPES[args.model]
    args.out.mkdir(parents=True, exist_ok=True)
    pieces = list(training_pieces(args.corpus))
    if not args.resume:
        prepare_tokenizer(recipe, pieces, args.out)
    windows = prepare_windows(recipe, pieces, args.out, args.seed)
    model = (load_model(args.out) if args.resume else build_model(recipe)).to(args.device)
    minutes = args.minutes or recipe.minutes
    steps = trained_steps(args.out) if args.resume else 0
    run = Run(
        recipe, model, windows, args.out, minutes, args.device, steps, checkpoints=args.checkpoints
    )
    train(run, args.from_progress)
    if args.checkpoints:
        write_card(recipe, args.out, pieces, run.steps, measured_in=last_checkpoint(args.out))
    else:
        write_card(recipe, args.out, pieces, run.steps)


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=RECIPES)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .jsonl or .txt files")
    parser.add_argument("--out", type=Path, required=True, help="directory for the model")
    parser.add_argument("--minutes", type=float, help="length of the training; default: recipe's")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the weights in --out")
    parser.add_argument(
        "--from-progress", type=float, default=0.0, help="enter the schedule here, 0 to 1"
    )
    parser.add_argument(
        "--checkpoints", action="store_true", help="keep the weights at log-spaced steps alone"
    )
    return parser.parse_args()


def prepare_tokenizer(recipe: Recipe, pieces: list[Piece], out: Path) -> None:
    """Train the tokenizer on the texts, and save it."""
    tokenizer = train_tokenizer((piece.text for piece in pieces), recipe.vocabulary)
    save_tokenizer(tokenizer, recipe.context, out)


def prepare_windows(recipe: Recipe, pieces: list[Piece], out: Path, seed: int) -> Windows:
    """Turn the texts into a source of windows, with the tokenizer saved in `out`."""
    stream = encode(load_tokenizer(out).backend_tokenizer, [piece.text for piece in pieces])
    print(f"{len(pieces)} texts, {len(stream):,} tokens", flush=True)
    return Windows(stream, recipe, seed)


def train(run: Run, start: float = 0.0) -> None:
    """Train until the minutes are over; they take the schedule from `start` to 1."""
    optimizers = build_optimizers(run.model)
    began = saved = time.monotonic()
    first, progress = run.steps, start
    while progress < 1:
        if run.checkpoints and run.steps in run.recipe.checkpoints:
            keep_checkpoint(run.model, run.recipe, run.out, run.steps)
        set_rates(optimizers, run.recipe, run.steps - first, progress)
        loss = training_step(run, optimizers, progress)
        if run.recipe.waves is not None:
            smooth(run, progress if start == 0 else 1.0)  # gone on from where it was smooth
        run.steps += 1
        now = time.monotonic()
        progress = start + (1 - start) * (now - began) / (60 * run.minutes)
        if run.steps % LOG_STEPS == 0:
            report(run, progress, loss.item())
        if now - saved > SAVE_SECONDS and not run.checkpoints:
            save_model(run.model, run.recipe, run.out, run.steps)
            saved = now
    if run.checkpoints:
        keep_checkpoint(run.model, run.recipe, run.out, run.steps)
    else:
        save_model(run.model, run.recipe, run.out, run.steps)


def smooth(run: Run, done: float) -> None:
    """Take the fast waves out of W_pos, as far as it is due after this share of the training."""
    assert run.recipe.waves is not None
    kept = waves_kept(run.recipe.waves, run.recipe.context - 1, done)
    smooth_positions(run.model.transformer.wpe.weight, kept)


def training_step(run: Run, optimizers: list[torch.optim.Optimizer], progress: float) -> Tensor:
    """One step on a fresh batch; return its loss in nats a token.

    One token more than the window is drawn, so that the last position learns too.
    """
    length = run.recipe.window(progress)
    count = run.recipe.tokens_per_step // length
    tokens = torch.from_numpy(run.windows.batch(count, length + 1)).to(run.device)
    first = torch.from_numpy(run.windows.offsets(count, run.recipe.context - length))
    positions = (first[:, None] + torch.arange(length)).to(run.device)
    with torch.autocast(run.device, dtype=torch.bfloat16, enabled=run.recipe.mixed):
        logits = run.model(tokens[:, :-1], position_ids=positions, use_cache=False).logits
    loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()


def report(run: Run, progress: float, loss: float) -> None:
    """Print how the training stands, with the best head's scores of both kinds."""
    period = (min(run.recipe.context, 128) - 1) // 2
    copies = repeated_random(run.recipe.vocabulary, period, count=4).to(run.device)
    text = torch.from_numpy(run.windows.batch(4, 2 * period)).to(run.device)
    previous, copying = previous_token(run.model, text), induction(run.model, copies)
    print(
        f"step {run.steps} ({progress:.0%}) loss {loss:.3f} "
        f"P(1) by layer {_best(previous)} induction by layer {_best(copying)}",
        flush=True,
    )


def _best(scores: Tensor) -> str:
    return "/".join(f"{score:.2f}" for score in scores.amax(-1).tolist())


if __name__ == "__main__":
    main()
