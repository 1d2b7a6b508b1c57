"""``python -m bench.windows MODEL ...``: how many windows with patterns accurate profiles need.

A kernel is a mean over 64 sampled queries; a profile (attention by offset) is a mean over windows.
With patterns of fewer windows, the pass is faster, but the standard error of the profile is larger.
This compares the standard errors of profile and kernel for every head, as root mean squares over
the offsets that both have, up to half of the context. The last two columns estimate how many
windows bring the profile's error below a tenth of the kernel's, for the median head and for nine
heads of ten. The error falls with the square root of the number of windows.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch

import poskernel_core as pk
from poskernel_core.analyses.kernels import formulas
from poskernel_core.common.specs import DEFAULT_CONTEXT, DEFAULT_QUERY, DEFAULT_SKIP, CorpusSpec
from poskernel_core.data.corpora import token_windows
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer

SHARE = 0.1


def ratios(model: str, context: int | None, windows: int) -> tuple[np.ndarray, int, int]:
    """Return every head's ratio of profile error to kernel error; and windows and context used."""
    located = locate(model)
    length = min(located.geometry.n_ctx, DEFAULT_CONTEXT if context is None else context)
    tokens = token_windows(
        CorpusSpec(name="sample"),
        load_tokenizer(located),
        context=length,
        windows=windows,
        start_token=True,
    ).tokens
    query = min(DEFAULT_QUERY, length - 1)
    found = pk.run_pass(
        pk.load(model, device="cpu"),
        tokens,
        positions=[query],
        gather=("keys", "queries", "patterns"),
    )
    rows = [_of_layer(found, layer, query) for layer in range(found.header.n_layers)]
    return np.concatenate(rows), len(tokens), length


def _of_layer(found: pk.Gathered, layer: int, query: int) -> np.ndarray:
    arrays, rule = found.layer(layer), found.header.rule(layer)
    low = rule.first_visible(query, DEFAULT_SKIP)
    kernels = formulas.kernel_rows(
        arrays["queries"][0], arrays["mean_keys"][:, low : query + 1], rule, low
    )
    most = found.header.context // 2
    of_kernel = kernels.std(axis=1, ddof=1)[:, ::-1][:, :most] / np.sqrt(kernels.shape[1])
    of_attention = arrays["profile_error"][:, : of_kernel.shape[1]].astype(np.float64)
    return np.asarray(_root_mean_square(of_attention) / _root_mean_square(of_kernel))


def _root_mean_square(errors: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(np.square(errors).mean(axis=-1)))


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(prog="bench.windows", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--context", type=int)
    parser.add_argument("--windows", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        "| model | windows × tokens | error of attention over the kernel's: median head "
        "| nine of ten within | windows for a tenth: median head | nine of ten |\n"
        "|---|---|---:|---:|---:|---:|"
    )
    for model in options.models:
        found, windows, context = ratios(model, options.context, options.windows)
        quantiles = np.quantile(found, [0.5, 0.9])
        wanted = windows * (quantiles / SHARE) ** 2
        numbers = [*(f"{each:.2f}" for each in quantiles), *(f"{each:,.0f}" for each in wanted)]
        print(f"| {model} | {windows} × {context:,} | {' | '.join(numbers)} |", flush=True)


if __name__ == "__main__":
    main()
