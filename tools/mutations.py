"""Whether the fast tests notice what they are there for: `python tools/mutations.py`.

Each row of the table breaks one line of the core. It is applied to a copy of the tree, where only
the tests that the row names are run; a break that none of them notices has escaped.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

# What takes long to import is imported here, once; every break is tried in a fork of this process.
import pytest
import torch
import transformers.modeling_utils  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]
CORE = "poskernel_core"
PYTEST = (
    "-x",
    "-q",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-m",
    "not slow and not browser",
)
VERDICTS = {0: "ESCAPED", 1: "caught"}
"""What pytest's exit codes say of a break; any other says that the tests did not run."""


class Break(NamedTuple):
    """One deliberate break.

    Attributes:
        file: path below ``poskernel_core``.
        old: text that the file holds exactly once.
        new: what it becomes.
        what: what goes wrong then.
        tests: names of the test files that must notice, without ``test_`` and ``.py``.
    """

    file: str
    old: str
    new: str
    what: str
    tests: str


COMMON = (
    Break(
        "common/result.py",
        'for part in (*NUMBERS, "texts")\n        }',
        'for part in ("values", "texts")\n        }',
        "joined results have no errors of their own",
        "result_join",
    ),
    Break(
        "common/result.py",
        "np.array(texts, dtype=object)",
        "np.array(texts)",
        "a token that ends in NUL loses it",
        "result_texts",
    ),
    Break(
        "common/specs.py",
        'self.model_dump(mode="json"), **more',
        'self.model_dump(mode="json", exclude={"seed"}), **more',
        "the seed is no part of the key of a run",
        "keys",
    ),
    Break(
        "common/specs.py",
        "{model_prefix(self.model.fingerprint)}{self.digest(**more)}",
        "{self.digest(**more)}",
        "keys of a run do not begin with the model's prefix",
        "keys",
    ),
    Break("common/specs.py", "sort_keys=True, ", "", "keys depend on the order of fields", "keys"),
    Break(
        "common/specs.py",
        "range(step - 1, context, step)",
        "range(step, context, step)",
        "recorded positions lie one too far",
        "keys",
    ),
    Break(
        "common/rounding.py",
        "return 1 - math.floor(math.log10",
        "return -math.floor(math.log10",
        "a number is rounded to one digit of its error",
        "rounding",
    ),
    Break(
        "common/rounding.py",
        "error / scale",
        "error",
        "the error of a small number is not in its power of ten",
        "rounding",
    ),
)

MODELS = (
    Break(
        "models/geometry.py",
        'return sizes.optional(MOST_HEADS, "num_key_value_heads") or heads',
        "return heads",
        "heads that share keys are not known",
        "builders families",
    ),
    Break(
        "models/weights.py",
        "embedded + positions + attention",
        "embedded + positions",
        "weights of too few layers are not refused at once",
        "strangers_models",
    ),
)

DATA = (
    Break(
        "data/corpora.py",
        "pending = pending[full * size :]",
        "pending = []",
        "the end of a document is thrown away",
        "corpora",
    ),
    Break(
        "data/corpora.py",
        r'("\n\n" if pending else "") + text',
        "text",
        "documents follow each other without a blank line",
        "corpora",
    ),
    Break(
        "data/corpora.py",
        "min(share * size, each * size - len(group))",
        "each * size - len(group)",
        "one long document fills a group",
        "corpora",
    ),
    Break(
        "data/corpora.py",
        ".T.reshape(-1)",
        ".reshape(-1)",
        "a group is no stretch of the text",
        "corpora",
    ),
    Break(
        "data/layouts.py",
        "[source.seed, stream, sample]",
        "[source.seed, stream]",
        "all samples are the same",
        "layouts",
    ),
    Break(
        "data/layouts.py",
        "tuple(place + 1 for place in self.pairs)",
        "self.pairs",
        "candidates are the tokens before them",
        "layouts",
    ),
    Break(
        "data/layouts.py",
        "length - 2)\n",
        "length - 1)\n",
        "the last pair may stand on the last token",
        "layouts",
    ),
    Break(
        "data/moves.py",
        "if last <= row]",
        "if last < row]",
        "a row cannot attend to its own word",
        "moves",
    ),
    Break(
        "data/moves.py",
        "int(last or first) + 1))",
        "int(last or first)))",
        "a range of layers lacks its last",
        "moves",
    ),
    Break(
        "data/made.py",
        "np.arange(first + every,",
        "np.arange(first + every - 1,",
        "doubled tokens stand one place early",
        "moves",
    ),
)

FORWARD = (
    Break(
        "forward/hooks.py",
        "WeakValueDictionary[int, nn.Module]()",
        "dict[int, nn.Module]()",
        "a model that is let go stays in memory",
        "families",
    ),
    Break(
        "common/attention.py",
        "max(skip, n - window + 1)",
        "max(skip, n - window + 2)",
        "a block of rows lacks the first key of its sliding window",
        "families passes",
    ),
    Break(
        "common/attention.py",
        "(key <= query - window)",
        "(key < query - window)",
        "a sliding window is one key too wide",
        "families passes",
    ),
    Break(
        "common/attention.py",
        "hidden = key > query",
        "hidden = key >= query",
        "no query sees its own key",
        "edits families",
    ),
    Break(
        "forward/attention.py",
        "        scale=call.scale,\n",
        "",
        "fused attention takes the usual scale",
        "families",
    ),
    Break(
        "forward/attention.py",
        "parts = [whole.sum(dim=-2).flip(-1)]",
        "parts = [whole.sum(dim=-2)]",
        "diagonals come in the wrong order",
        "passes",
    ),
    Break(
        "forward/attention.py",
        "later = begin + keys + 2 - rows",
        "later = begin + keys + 1 - rows",
        "diagonals that begin below the first row are read one key too early",
        "scores_rules",
    ),
    Break(
        "forward/attention.py",
        "torch.where(hidden, -torch.inf, torch.inf)",
        "torch.where(hidden, -10.0, torch.inf)",
        "hidden keys take a little attention",
        "scores_rules",
    ),
    Break(
        "forward/attention.py",
        "beta=0, alpha=scale, out=out",
        "beta=0, out=out",
        "scores of a pass lack their scale",
        "scores_rules",
    ),
    Break(
        "forward/attention.py",
        "total.baddbmm_(block, seen, alpha=call.scale)",
        "total.baddbmm_(block, seen)",
        "raw scores near the diagonal lack their scale",
        "scores_rules",
    ),
    Break(
        "forward/attention.py",
        "if plain and rows == BAND_ROWS:",
        "if rows == BAND_ROWS:",
        "raw scores near the diagonal are not capped",
        "scores_rules",
    ),
    Break(
        "forward/finite.py",
        "key=tensor.stride, reverse=True)",
        "key=tensor.stride, reverse=True)[:0]",
        "tensors are not read in the order of their memory",
        "scores_rules",
    ),
    Break(
        "passes/streaming.py",
        "            total.zero_()",
        "            pass",
        "sums go on from those of the group before",
        "passes",
    ),
    Break(
        "passes/runner.py",
        "            return work(batch), batch",
        "            return work(batch), None",
        "memory runs out anew in every group",
        "checkpoints",
    ),
    Break(
        "passes/runner.py",
        'header["group"] == block.group and',
        "",
        "a checkpoint of another group is gone on from",
        "checkpoints",
    ),
    Break(
        "passes/runner.py",
        'header.get("made") == asdict(keep.made)',
        "True",
        "a checkpoint of other versions is gone on from",
        "checkpoints",
    ),
    Break(
        "passes/runner.py",
        "    drop_partial(store, run, shard, but=made)\n",
        "",
        "groups of other tokens are in the way",
        "checkpoints",
    ),
    Break(
        "statistics/base.py",
        "return x.transpose(1, 2).sum(dim=0).transpose(0, 1)",
        "return x.transpose(1, 2).sum(dim=0)",
        "sums over texts have positions for heads",
        "scores_rules",
    ),
    Break(
        "forward/attention.py",
        "-= block.pattern[..., 0]",
        "+= block.pattern[..., 0]",
        "the start token's column is added, not taken off",
        "passes",
    ),
    Break(
        "forward/adapters.py",
        "self.config.window_size if",
        "None if",
        "local layers see everything",
        "families",
    ),
    Break(
        "forward/adapters.py",
        "attend(self, query, key, value, 1.0, window)",
        "attend(self, query, key, value, query.shape[-1] ** -0.5, window)",
        "GPT-Neo's scores are scaled",
        "families",
    ),
    Break(
        "forward/attention.py",
        "((call.q * call.scale) @ keys",
        "(call.q @ keys",
        "scores of a changed pass lack their scale",
        "edits",
    ),
    Break(
        "forward/interventions.py",
        "square[..., rows, rows - 1] = value",
        "square[..., rows - 1, rows - 1] = value",
        "the wrong diagonal is cut",
        "edits edits_effect",
    ),
    Break(
        "forward/interventions.py",
        "change = averaged(self.rows, self.group, self.keep) - self.rows",
        "change = self.rows - averaged(self.rows, self.group, self.keep)",
        "the averaged stream moves the other way",
        "edits edits_elsewhere",
    ),
    Break(
        "forward/interventions.py",
        "1.0 / len(keys)",
        "1.0",
        "moved attention is not shared among its keys",
        "edits",
    ),
    Break(
        "forward/interventions.py",
        "= top + self.strength",
        "= self.strength",
        "raised scores do not stand above the row's largest",
        "edits",
    ),
    Break(
        "forward/interventions.py",
        "z[:, heads] = 0.0",
        "z[:, heads] *= 0.5",
        "an ablated head still speaks",
        "edits edits_elsewhere",
    ),
    Break(
        "forward/interventions.py",
        "cos[:, :1].expand_as(cos)",
        "cos[:, -1:].expand_as(cos)",
        "rotations without positions are those of the last one",
        "switches",
    ),
    Break(
        "forward/readout.py",
        "_Patterns(int(start_token), cell)",
        "_Patterns(0, cell)",
        "the start token counts in the attention to the previous token",
        "intervention",
    ),
    Break(
        "forward/readout.py",
        "tokens[0, rows.start + 1 : rows.stop + 1, None]",
        "tokens[0, rows.start : rows.stop, None]",
        "the loss is that of the token itself",
        "intervention",
    ),
    Break(
        "forward/readout.py",
        "(p.exp() * (p - q))",
        "(q.exp() * (p - q))",
        "the divergence is weighted by the wrong run",
        "intervention",
    ),
    Break(
        "forward/first_layer.py",
        "if self.centred else x",
        "if not self.centred else x",
        "norms are centred where they are not",
        "first_layer",
    ),
    Break(
        "forward/first_layer.py",
        "weight[:, -kv * d :]",
        "weight[:, : kv * d]",
        "queries are taken for values",
        "first_layer",
    ),
    Break(
        "forward/loaded.py",
        'getattr(embedding, "offset", 0)',
        "0",
        "OPT's positions begin two rows early",
        "edits_elsewhere",
    ),
)

STATISTICS = (
    Break(
        "statistics/base.py",
        "sums / (windows // plan.groups)",
        "sums",
        "means are sums",
        "passes",
    ),
    Break(
        "statistics/base.py",
        ".round_()",
        "",
        "sums depend on the order of adding",
        "shards",
    ),
    Break(
        "common/differences.py",
        "np.rint(counts).astype(np.int16)",
        "counts.astype(np.int16)",
        "differences are cut, not rounded",
        "differences",
    ),
    Break(
        "common/differences.py",
        "np.float32(sign / len(kept))",
        "np.float32(sign / len(groups))",
        "the mean of some groups is divided by all",
        "differences passes",
    ),
    Break(
        "statistics/queries.py",
        "slots[:, :, first : first + count]",
        "slots[:, :, :count]",
        "queries of later windows fall on the first",
        "passes",
    ),
    Break(
        "statistics/patterns.py",
        "without_key_0=self.plan.start_token",
        "without_key_0=False",
        "the start token's column counts in the profile",
        "passes",
    ),
    Break(
        "statistics/residuals.py",
        "int(self.plan.start_token) :]",
        "0:]",
        "the start token counts in the spread of the stream",
        "passes",
    ),
    Break(
        "statistics/residuals.py",
        "* len(batch.tokens)",
        "* 1",
        "rows of positions count once a batch",
        "helix",
    ),
    Break(
        "statistics/scores.py",
        "BAND, int(self.plan.start_token))",
        "BAND, 0)",
        "the start token's row counts in the scores",
        "previous_token passes",
    ),
    Break(
        "statistics/repeats.py",
        "2 if self.plan.start_token else 1",
        "1",
        "the start token counts as a token that repeats",
        "repeated_tokens",
    ),
    Break(
        "statistics/moments.py",
        "squares + step**2 * (self.count * count / total)",
        "squares",
        "the spread between batches is forgotten",
        "moments",
    ),
    Break(
        "statistics/moments.py",
        "/ (self.count - 1) / self.count",
        "/ (self.count - 1)",
        "the error of a mean is the spread",
        "moments",
    ),
    Break(
        "common/jackknife.py",
        "(count - 1) * (estimates.mean(axis=axis) - whole)",
        "estimates.mean(axis=axis) - whole",
        "biases lack their factor",
        "moments",
    ),
    Break(
        "common/jackknife.py",
        "STUDENT[groups - 2]",
        "STUDENT[groups - 1]",
        "an interval has a degree of freedom too many",
        "moments",
    ),
    Break(
        "analyses/head_measures/claims.py",
        "error, result.interval, bias)",
        "error, 2.0, bias)",
        "claims do not go by the intervals of few groups",
        "claims",
    ),
    Break(
        "common/jackknife.py",
        "np.sqrt((count - 1) * ",
        "np.sqrt(",
        "the jackknife over groups lacks its factor",
        "moments",
    ),
    Break(
        "statistics/moments.py",
        'torch.tensor(samples, device="cpu") % GROUPS',
        'torch.arange(len(samples), device="cpu") % GROUPS',
        "groups depend on how samples are cut",
        "moments",
    ),
)

PASSES = (
    Break(
        "passes/runner.py",
        "block.windows[read:]",
        "block.windows",
        "a resumed pass reads windows twice",
        "checkpoints",
    ),
    Break(
        "common/shards.py",
        "self.number * each + min(self.number, more)",
        "self.number * each",
        "shards overlap",
        "shards",
    ),
    Break(
        "data/texts.py",
        "held[place] = document",
        "",
        "an article comes twice, and another never",
        "corpora",
    ),
    Break(
        "passes/streaming.py",
        "if not torch.isfinite(sums).all()",
        "if torch.isnan(sums).any()",
        "infinite sums pass for numbers",
        "checkpoints",
    ),
    Break(
        "passes/runner.py",
        "    work.restore(sums)\n",
        "",
        "a resumed pass forgets what was read before",
        "checkpoints",
    ),
)

KERNELS = (
    Break(
        "common/attention.py",
        "max(skip, n - window + 1)",
        "max(skip, n - window)",
        "a kernel sees one key beyond the sliding window",
        "kernels analyses",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "scores = rule.capped(rule.scale * products)",
        "scores = rule.capped(products)",
        "kernels lack the score's scale",
        "kernels",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "1 / np.square(kernel)",
        "1 / np.abs(kernel)",
        "the effective token count is of the mass, not its squares",
        "kernels",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "turned = kernel[..., ::-1]",
        "turned = kernel",
        "half of the mass is counted from the first key",
        "kernels",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "uniform_share * visible, 2, 1)",
        "uniform_share * visible, 1, 2)",
        "uniform and slow decay are swapped",
        "kernels",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "0.5 * np.abs(left - right)",
        "np.abs(left - right)",
        "distances between kernels are doubled",
        "kernel_distances",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "pairs += gap.shape[1] * gap.shape[2]",
        "pairs += gap.shape[1]",
        "queries of different groups are counted too few",
        "kernel_distances",
    ),
    Break(
        "statistics/sinks.py",
        "self._alpha / queries",
        "self._alpha / self.plan.context",
        "attention to a later key is averaged over queries that cannot see it",
        "sinks",
    ),
    Break(
        "statistics/sinks.py",
        "1 - self._held / self.plan.context",
        "self._held / self.plan.context",
        "the mass of a learned sink is that of the keys",
        "sinks",
    ),
    Break(
        "analyses/score_shares/run.py",
        "covariance = score - 2 * common + position, 2 * (",
        "covariance = score - 2 * common + position, (",
        "the covariance of position and content counts once",
        "score_shares",
    ),
    Break(
        "common/attention.py",
        "self.cap * (np.tanh(small) if",
        "(np.tanh(small) if",
        "capped scores stay between -1 and 1",
        "scores_rules families",
    ),
    Break(
        "forward/attention.py",
        "total = torch.logaddexp(scores.logsumexp(dim=-1, keepdim=True), sink)",
        "total = scores.logsumexp(dim=-1, keepdim=True)",
        "a learned sink takes no attention",
        "scores_rules families",
    ),
    Break(
        "storage/statistics.py",
        'part_key(run, statistic, str(layer)), {"layer": layer}',
        'part_key(run, statistic, "0"), {"layer": layer}',
        "all layers of a statistic lie under one key",
        "stored_statistics checkpoints",
    ),
    Break(
        "engine/execute.py",
        " or is_begun(store, windows, g)",
        "",
        "a pass that was broken off between groups begins anew where more is wanted",
        "stored_statistics",
    ),
    Break(
        "engine/execute.py",
        "for run in wanted if windows_of(run) == windows for g",
        "for run in asked.needs.values() if windows_of(run) == windows for g",
        "a pass does not gather what others wait for",
        "stored_statistics",
    ),
    Break(
        "analyses/rotary/formulas.py",
        "product.real @ np.cos(angle) - product.imag",
        "product.real @ np.cos(angle) + product.imag",
        "pairs turn the wrong way",
        "rotary_spectrum",
    ),
    Break(
        "analyses/rotary/formulas.py",
        "scale * factor**2 * queries",
        "scale * factor * queries",
        "the factor of YaRN counts once, not for query and key",
        "rotary_spectrum rotary_pairs",
    ),
    Break(
        "analyses/rotary/formulas.py",
        "- 2 * real * imag * squares[2]",
        "+ 2 * real * imag * squares[2]",
        "a pair's swing takes its phase for the opposite",
        "rotary_spectrum",
    ),
    Break(
        "statistics/entropy.py",
        "sum_of_terms / safe",
        "sum_of_terms",
        "the entropy of what is left is not renormalised",
        "entropy",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "kernels[:, place, n::-1]",
        "kernels[:, place, : n + 1]",
        "a kernel is by key where it should be by offset",
        "kernel_distances",
    ),
    Break(
        "analyses/kernels/formulas.py",
        "support = positions[low] - skip + 1",
        "support = positions[low] + 1",
        "skipped keys count in the common support",
        "kernel_distances",
    ),
    Break(
        "analyses/kernels/etc.py",
        '"local_mass": mean[:, -local_tokens:]',
        '"local_mass": mean[:, :local_tokens]',
        "local mass is that of the first keys",
        "analyses",
    ),
    Break(
        "analyses/kernels/kernel.py",
        "(low, header.context - n - 1)",
        "(header.context - n - 1, low)",
        "a kernel stands at the wrong keys",
        "analyses",
    ),
    Break(
        "analyses/kernels/distances.py",
        'method="complete"',
        'method="single"',
        "heads are alike by way of a third",
        "kernel_distances head_distances",
    ),
    Break(
        "analyses/sources.py",
        '"destination": params.token,',
        '"destination": None,',
        "a fixed token's queries are those of the text",
        "source_runs",
    ),
)

TOPICS = (
    Break(
        "analyses/helix/formulas.py",
        "return wide - wide.mean(axis=0)",
        "return wide - wide.mean()",
        "positions are centred over everything",
        "positions_math helix",
    ),
    Break(
        "analyses/helix/formulas.py",
        "components[: len(values)] = vectors.T[::-1]",
        "components[: len(values)] = vectors.T",
        "the smallest component comes first",
        "positions_math",
    ),
    Break(
        "analyses/helix/formulas.py",
        "np.degrees(subspace_angles(a, b))",
        "subspace_angles(a, b)",
        "angles are radians",
        "positions_math",
    ),
    Break(
        "analyses/helix/formulas.py",
        "distance > FAR_OUT",
        "distance >= FAR_OUT",
        "a position at the bound counts as far from the others",
        "helix",
    ),
    Break(
        "analyses/random_tokens/params.py",
        "if count <= room",
        "if count < room",
        "the largest number of sequences that fits is not offered first",
        "first_samples",
    ),
    Break(
        "analyses/bag/contextual_neurons.py",
        "float(np.median(row)) for row in rows",
        "float(np.mean(row)) for row in rows",
        "the bag is judged by a mean over positions",
        "bag_told",
    ),
    Break(
        "analyses/helix/formulas.py",
        "max(leave_out, int(start_token))",
        "leave_out",
        "the start token's position counts",
        "helix tangent positions_math",
    ),
    Break(
        "analyses/helix/tangent.py",
        "points[query + 1] - points[query - 1]",
        "points[query + 1] - points[query]",
        "the tangent is one-sided",
        "tangent",
    ),
    Break(
        "analyses/helix/tangent.py",
        "keys = query - np.arange",
        "keys = query + np.arange",
        "the band runs the other way",
        "tangent",
    ),
    Break(
        "analyses/previous_token/formulas.py",
        "- scores) / (texts - 1)",
        "- scores) / texts",
        "the bias of means of few texts stays",
        "previous_token positions_math",
    ),
    Break(
        "analyses/previous_token/formulas.py",
        "here - (2 * before + two) / 3",
        "here - (before + 2 * two) / 3",
        "the dark diagonal is held against the wrong line",
        "previous_token previous_token_kinds positions_math",
    ),
    Break(
        "analyses/previous_token/spec.py",
        "part[..., BAND + 1] - part[..., BAND]",
        "part[..., BAND] - part[..., BAND + 1]",
        "advantages have the other sign",
        "previous_token previous_token_kinds",
    ),
    Break(
        "analyses/previous_token/kinds.py",
        "largest == 1, previous",
        "largest == 0, previous",
        "heads that look at themselves are previous-token heads",
        "previous_token_kinds",
    ),
    Break(
        "analyses/contextual_heads/run/contents.py",
        "self.kernel.log() + self.log_weight",
        "self.log_weight",
        "denominators lack the kernel",
        "denominators",
    ),
    Break(
        "analyses/contextual_heads/run/contents.py",
        "first_visible(length - 1,",
        "first_visible(length,",
        "a row lacks the first key of its window",
        "denominators contextual_heads",
    ),
    Break(
        "analyses/contextual_heads/run/contents.py",
        "cut[:, query] = token",
        "cut[:, query - 1] = token",
        "the destination token stands one place early",
        "denominators contextual_heads",
    ),
    Break(
        "analyses/contextual_heads/run/duplicates.py",
        "self._keys = self._queries - torch.from_numpy(distances)",
        "self._keys = self._queries - torch.from_numpy(distances) + 1",
        "copies are looked for one place late",
        "duplicates",
    ),
    Break(
        "analyses/contextual_heads/run/duplicates.py",
        "rows[0] - rows[1]",
        "rows[0]",
        "what is attended without a copy is not taken off",
        "duplicates",
    ),
    Break(
        "analyses/contextual_heads/behaviour.py",
        'values["denominator_cv"] <= limits.steady',
        'values["denominator_cv"] >= limits.steady',
        "unsteady heads are contextual",
        "duplicates",
    ),
    Break(
        "analyses/bag/run/bag.py",
        "return self.kernels.mean(dim=0)",
        "return self.kernels[0]",
        "the common kernel is the first head's",
        "bag",
    ),
    Break(
        "analyses/bag/run/bag.py",
        "log_weight.exp().float() / denominators[:, None]",
        "log_weight.exp().float()",
        "weights lack their denominators",
        "bag",
    ),
    Break(
        "analyses/bag/run/bag.py",
        ".quantile(0.5, dim=0)",
        ".mean(dim=0)",
        "the median denominator is the mean",
        "bag",
    ),
    Break(
        "analyses/bag/run/predicted.py",
        "values[:, : bag.start] = 0",
        "values[:, :0] = 0",
        "the start token is in the bag",
        "bag",
    ),
    Break(
        "analyses/bag/run/predicted.py",
        "if head not in bag.heads]",
        "]",
        "contextual heads count twice",
        "bag",
    ),
    Break(
        "analyses/additivity/run.py",
        "// (shifts - 1)",
        "// shifts",
        "passages do not reach the end of the context",
        "additivity",
    ),
    Break(
        "analyses/additivity/run.py",
        "1 - (position + content) / total",
        "1 - position / total",
        "the rest holds the content too",
        "additivity",
    ),
    Break(
        "analyses/position_vs_token/run/mean_scores.py",
        "[..., 1:].mean(-1)",
        ".mean(-1)",
        "position 0 counts in the profile",
        "position_vs_token",
    ),
    Break(
        "analyses/position_vs_token/run/zero.py",
        "((True, 1), (False, 0), (False, 1))",
        "((True, 1), (False, 1), (False, 0))",
        "two cases are swapped",
        "position_vs_token",
    ),
    Break(
        "analyses/induction/run/copies.py",
        '("induction", period - 1), ("duplicate", period)',
        '("induction", period), ("duplicate", period - 1)',
        "induction is taken for duplicates",
        "induction",
    ),
    Break(
        "analyses/induction/run/recency.py",
        "mean[-1, ..., -1] - mean[0, ..., -1]",
        "mean[-1, ..., -1] - mean[0, ..., 0]",
        "the rise is against another candidate",
        "recency induction",
    ),
    Break(
        "analyses/random_tokens/run/rows.py",
        "found[:, -1] - found[:, 0]",
        "found[:, 0] - found[:, -1]",
        "the last candidate's advantage has the other sign",
        "recency induction random_experiments",
    ),
    Break(
        "analyses/interventions/run/intervene.py",
        "rise.std(ddof=1) / np.sqrt(len(rise))",
        "rise.std(ddof=1)",
        "the error of a mean rise is the spread",
        "intervention",
    ),
    Break(
        "analyses/interventions/run/intervene.py",
        "changed.pattern - clean.pattern",
        "clean.pattern - changed.pattern",
        "the difference has the other sign",
        "intervention",
    ),
)

STORAGE = (
    Break(
        "storage/encoding.py",
        "if not intact(data):",
        "if False:",
        "checksums are not checked",
        "store archive",
    ),
    Break(
        "storage/encoding.py",
        'about.get("key") == key',
        'about.get("key", key) == key',
        "an entry that names no key is taken",
        "store",
    ),
    Break(
        "storage/archive.py",
        'about["schema"] != SCHEMA',
        'about["schema"] > SCHEMA',
        "archives of an older layout are taken in",
        "archive strangers_archives",
    ),
    Break(
        "storage/statistics.py",
        "all(map(store.has, parts))",
        "any(map(store.has, parts))",
        "statistics that lack a layer pass for whole",
        "checkpoints",
    ),
)

ENGINE = (
    Break(
        "engine/worker.py",
        "            heap.give_back()",
        "            pass",
        "a worker holds the holes between its tensors",
        "heap",
    ),
    Break(
        "engine/worker.py",
        "            if task.cancelled.is_set():\n"
        '                raise Cancelled("Cancelled.")\n'
        "            now",
        "            now",
        "a computation does not heed that it was cancelled",
        "waiting",
    ),
    Break(
        "engine/worker_client.py",
        "HEAP | environment()",
        "environment()",
        "a worker has eight heaps for every core",
        "heap",
    ),
    Break(
        "engine/bounds.py",
        "own >= limits.open",
        "own > limits.open",
        "a visitor may let one too many wait",
        "bounds engine_visitors",
    ),
    Break(
        "engine/lanes.py",
        "self._rows.move_to_end(self._served)",
        "self._rows.move_to_end(self._served, last=False)",
        "a visitor who has been served is served again before the others",
        "waiting",
    ),
    Break(
        "engine/engine.py",
        "if due and (waits or others):",
        "if due:",
        "what runs for readers who have left is cancelled while nobody else waits",
        "engine_visitors",
    ),
    Break(
        "engine/engine.py",
        "job.abandoned = True",
        "job.abandoned = False",
        "whoever comes back is told that the computation was cancelled",
        "engine_visitors",
    ),
    Break(
        "engine/job.py",
        "pace * (self.total - self.done)",
        "pace * self.total",
        "the time left does not shrink",
        "progress engine_jobs",
    ),
    Break(
        "engine/requests.py",
        "params=params.model_dump())",
        "params={})",
        "equal requests have different keys",
        "keys",
    ),
    Break(
        "engine/provenance.py",
        '"seed": run.seed,',
        '"seed": 0,',
        "the provenance tells the wrong seed",
        "provenance",
    ),
)

SHOWN = (
    Break(
        "figures/of_kernels.py",
        'kind == KINDS.index("local")',
        "False",
        "a local head's kernel is a spike at the edge",
        "view",
    ),
    Break(
        "figures/curves.py",
        "low = mean - error if floor is None",
        "low = mean if floor is None",
        "a band of one error begins at the mean",
        "figures_curves",
    ),
    Break(
        "figures/of_positions.py",
        '        head.coordinates["band"][shown],\n        values[',
        '        -head.coordinates["band"][shown],\n        values[',
        "the past stands where the future is",
        "tangent",
    ),
    Break(
        "figures/random_rows.py",
        "left - left.mean()",
        "left",
        "a curve is held against a line through 1",
        "figures_random",
    ),
    Break(
        "ledger/compare.py",
        "width * np.nan_to_num(errors)",
        "0",
        "our own errors are not allowed for",
        "ledger",
    ),
    Break(
        "ledger/compare.py",
        "ours / below, errors / np.abs(below)",
        "ours, errors",
        "a published ratio is held against a number",
        "ledger",
    ),
    Break(
        "figures/exports.py",
        "[result.analysis, result.params, run]",
        "[result.params, run]",
        "two questions of one run have one name",
        "exports",
    ),
    Break(
        "cli/reports.py",
        'in {result.units[name]}"',
        'in units"',
        "the summary does not tell the unit",
        "reports",
    ),
)

BREAKS = (
    *COMMON,
    *MODELS,
    *DATA,
    *FORWARD,
    *STATISTICS,
    *PASSES,
    *KERNELS,
    *TOPICS,
    *STORAGE,
    *ENGINE,
    *SHOWN,
)


def copy_tree(target: Path) -> None:
    """Link what git tracks to another folder; a file that is written there becomes its own."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, place = ROOT / name, target / name
        if source.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, place)
            except OSError:  # another disk
                shutil.copy2(source, place)


def verdict(row: Break) -> str:
    """Return what becomes of a break: ``caught``, ``ESCAPED``, or why that is not known."""
    text = (ROOT / CORE / row.file).read_text("utf-8")
    if row.old and text.count(row.old) != 1:
        return f"NOT APPLIED: the old text is there {text.count(row.old)} times"
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        broken = tree / CORE / row.file
        broken.unlink()  # the original is another name of the same file
        broken.write_text(text.replace(row.old, row.new) if row.old else text, "utf-8")
        code, said = run_tests(tree, [f"tests/test_{name}.py" for name in row.tests.split()])
    return VERDICTS.get(code, f"NOT RUN: {said[-300:]}")


def run_tests(tree: Path, files: list[str]) -> tuple[int, str]:
    """Return pytest's exit code for some files of a tree, and what it prints."""
    torch.set_num_threads(1)
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    log = tree / "pytest.log"
    with log.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        code = pytest.main([*PYTEST, *files])
    os.chdir(ROOT)
    return int(code), " ".join(log.read_text("utf-8", "replace").split())


def _all_tests(rows: list[Break]) -> str:
    return " ".join(sorted({name for row in rows for name in row.tests.split()}))


def main() -> int:
    """Print the table; return 1 if a break escapes, or could not be tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, help="number of the one break that is tried")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at a time")
    asked = parser.parse_args()
    numbers = range(len(BREAKS)) if asked.only is None else [asked.only]
    rows = [BREAKS[number] for number in numbers]
    ends = []
    with multiprocessing.get_context("fork").Pool(asked.jobs, maxtasksperchild=1) as pool:
        whole = pool.apply(verdict, (Break("__init__.py", "", "", "", _all_tests(rows)),))
        if whole != VERDICTS[0]:
            print(f"Tests of the tree as it is do not pass: {whole}")
            return 1
        found = pool.imap(verdict, rows, chunksize=1)
        for number, row, end in zip(numbers, rows, found, strict=True):
            print(f"{number:3}  {end:8} {row.file}: {row.what}", flush=True)
            ends.append(end)
    caught = ends.count("caught")
    print(f"{caught} of {len(ends)} breaks are caught.")
    return int(caught < len(ends))


if __name__ == "__main__":
    sys.exit(main())
