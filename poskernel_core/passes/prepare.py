"""Prepare a pass: find the model, cut the token windows, compute the sizes."""

from dataclasses import replace

import numpy as np

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import Dealt, in_equal_groups
from poskernel_core.common.header import PlanHeader
from poskernel_core.common.specs import Execution, RunSpec
from poskernel_core.data import corpora
from poskernel_core.data.layouts import TokenPool, random_layout, sequences
from poskernel_core.data.made import RANDOM, REPEATED, doubled, repeated_windows
from poskernel_core.models import catalog
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.tokenizers import NONE_THERE, Tokenizer
from poskernel_core.statistics import STATISTICS, Sizes


def locate_again(run: RunSpec) -> catalog.Located:
    """Find the model of a run, at the same commit and with the same weights."""
    located = catalog.find_again(run.model)
    if located.spec.fingerprint != run.model.fingerprint:
        raise BadRequest(f"The files of {run.model.name!r} changed meanwhile: ask again.")
    return located


def prepare(
    run: RunSpec, execution: Execution, located: catalog.Located, tokenizer: Tokenizer | None
) -> tuple[Tokens, Sizes]:
    """Return the token windows of a run and the sizes of its pass."""
    geometry = located.geometry
    if run.context > geometry.n_ctx:
        drawn = run.corpus.name == RANDOM
        way = (
            "ask for shorter sequences"
            if drawn
            else f"choose a context of {geometry.n_ctx} or less"
        )
        raise BadRequest(
            f"{run.model.name!r} reads at most {geometry.n_ctx} tokens; {run.context} were asked "
            f"for: {way}."
        )
    cut = _windows(run, execution, geometry, tokenizer)
    windows = cut.tokens
    if run.destination is not None:
        if tokenizer is None:
            raise BadRequest("A fixed token needs a tokenizer, and the model has none.")
        windows[:, -1] = tokenizer.single_id(run.destination)
    if run.repeat_every is not None:
        windows = doubled(windows, run.repeat_every, first=int(run.start_token))
    name, corpus = run.model.name, run.corpus.name
    remedy = (
        f"make the windows of {corpus!r} with the tokenizer of {name!r}, or choose their own model"
        if corpus.endswith(".npy")
        else f"the tokenizer of {name!r} is another model's, put its own in its place"
    )
    check_ids(geometry, windows, remedy)
    return windows, sizes_of(run, geometry, windows, cut.dealt, tokenizer)


def wants_texts(run: RunSpec) -> bool:
    """Return whether a statistic of a run reads the texts of the tokenizer's tokens."""
    for name in run.gather:
        if name not in STATISTICS:
            raise BadRequest(f"No statistic {name!r}: expected some of {', '.join(STATISTICS)}.")
    return any(STATISTICS[name].wants_texts for name in run.gather)


def sizes_of(
    run: RunSpec,
    geometry: Geometry,
    windows: Tokens,
    dealt: Dealt,
    tokenizer: Tokenizer | None = None,
) -> Sizes:
    """Return the sizes of a run's pass, with the tokens' texts if a statistic reads them."""
    sizes = sizes_for(geometry, windows, run.positions, run.queries_per_position, run.start_token)
    sizes = replace(sizes, pattern_windows=run.pattern_windows, dealt=dealt)
    if not wants_texts(run):
        return sizes
    if tokenizer is None:
        raise BadRequest(NONE_THERE)
    texts, ordinary = [""] * geometry.n_vocab, tokenizer.ordinary_ids(geometry.n_vocab)
    for number, text in zip(ordinary, tokenizer.decode_each(ordinary), strict=True):
        texts[number] = text
    return replace(sizes, texts=tuple(texts))


def _windows(
    run: RunSpec, execution: Execution, geometry: Geometry, tokenizer: Tokenizer | None
) -> corpora.Cut:
    count = in_equal_groups(run.windows)
    if run.corpus.name == REPEATED:
        if geometry.scheme != "learned":
            raise BadRequest(
                f"{run.model.name!r} has {geometry.scheme} positions: nothing is added to its "
                "residual stream, so one token repeated looks alike at every position and draws "
                "no helix, nor is there anything to average; choose a model with learned "
                "positions."
            )
        start = None if tokenizer is None else tokenizer.known_start()
        rows = repeated_windows(
            geometry.n_vocab, context=run.context, windows=count, avoid=start, seed=run.seed
        )
        return corpora.Cut(rows, "windows")
    if run.corpus.name == RANDOM:
        layout = random_layout(run.context, run.start_token)
        source = random_source(run, geometry, tokenizer)
        return corpora.Cut(sequences(layout, source, 0, range(count)), "windows")
    return corpora.token_windows(
        run.corpus,
        tokenizer,
        context=run.context,
        windows=run.windows,
        start_token=run.start_token,
        seed=run.seed,
        exactly=execution.all_windows,
        cut=run.destination is not None,
    )


def random_source(run: RunSpec, geometry: Geometry, tokenizer: Tokenizer | None) -> TokenPool:
    """Return the pool that random tokens are drawn from: the tokenizer's ordinary tokens.

    Without a tokenizer the pool is the whole vocabulary, and there is no start token.
    """
    if tokenizer is None:
        return TokenPool(np.arange(geometry.n_vocab), None, run.seed)
    start = tokenizer.known_start()
    ordinary = np.setdiff1d(
        tokenizer.ordinary_ids(geometry.n_vocab), [-1 if start is None else start]
    )
    return TokenPool(ordinary, start, run.seed)


def check_ids(geometry: Geometry, windows: Tokens, remedy: str) -> None:
    """Check that all token ids are in the vocabulary; ``remedy`` is the advice if they are not."""
    low, high = int(windows.min()), int(windows.max())
    if low < 0 or high >= geometry.n_vocab:
        raise BadRequest(
            f"Token ids must lie in 0 .. {geometry.n_vocab - 1}; got {low} .. {high}: {remedy}."
        )


def sizes_for(
    geometry: Geometry, windows: Tokens, positions: tuple[int, ...], samples: int, start_token: bool
) -> Sizes:
    """Return the sizes of a pass over windows; positions outside the windows are left out."""
    count, context = windows.shape
    if context > geometry.n_ctx:
        raise BadRequest(
            f"The model reads at most {geometry.n_ctx} tokens; the windows have {context}."
        )
    kept = tuple(n for n in positions if n < context)
    if not kept:
        raise BadRequest(f"No query position below {context}: choose one in the window.")
    return Sizes(geometry, context, count, kept, samples, start_token)


def header_of(sizes: Sizes, run: RunSpec, device: str) -> PlanHeader:
    """Return the header of a pass that has not run yet: sizes, windows, precision, device."""
    geometry = sizes.geometry
    reasons = tuple(geometry.reason(layer) for layer in range(geometry.n_layers))
    return PlanHeader(
        **vars(geometry),  # a header takes the sizes that it has
        headless=reasons if any(reasons) else (),
        context=sizes.context,
        windows=sizes.windows,
        positions=sizes.positions,
        samples=sizes.sampled,
        groups=sizes.groups,
        dealt=sizes.dealt,
        start_token=sizes.start_token,
        device=device,
        dtype=run.dtype,
    )
