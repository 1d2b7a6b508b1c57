"""What is found by topic: numbers, direction and limit, and nothing where an interval holds it."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.score_components.spec import ScoreComponents
from tests.support.made_findings import alike, found, uncertain

L3H7 = {"layer": 3, "head": 7}
ROW = L3H7 | {"query": 2}
ROWS = {"coordinates": {"second": [4, 5]}}
PAIRS = {"params": {"first": 1, "second": 4}}
NAN = np.nan


def pattern(first, last):
    """The pattern of sequences of seven tokens whose candidates are at 2 and 5."""
    made = np.zeros((7, 7))
    made[-1, [2, 5]] = first, last
    return made


def cause(change, error):
    rises = [0.3, 0.3 + change]
    return {"attention": ([0.7, 0.6], 0.01), "attention_rise": (rises, 0.1),
            "attention_rise_change": (change, error)}  # fmt: skip


INDUCTION = [
    ("induction-scores", {"induction": (0.87, 0.02)}, L3H7,
     "L3H7 gives … 0.87 … an induction head (limit 0.3)."),
    ("induction-scores", {"induction": (0.02, 0.02)}, L3H7,
     "L3H7 gives … 0.02 of its attention."),
    *(("induction-scores", {"induction": each}, L3H7, "")
      for each in ((0.31, 0.02), (NAN, 0.02), (0.1, NAN))),
    ("induction-scores", {"induction": ([[0.9, 0.1]], NAN)}, {}, ""),
    ("induction-scores", {"induction": ([[0.1, 0.5, 0.9], [0.31, 0.0, NAN]], 0.02)}, {},
     "In 2 of 5 heads … 0.3 or more (1 more can't be told); it is largest in L0H2 (0.90)."),
    ("induction-scores", {"induction": ([0.1, 0.9], 0.02)}, {"layer": 1}, "1 of 2 heads … L1H1"),
    ("induction-scores", {"induction": ([[0.1], [0.11]], 0.02)}, {}, "In none of 2 heads … 0.3 or"),
    ("induction-scores", {"induction": ([[0.9], [0.88]], 0.02)}, {}, "In 2 of 2 heads … 0.3 or"),
    ("induction-recency", {"probability": ([[0.3, 0.08], [0.2, 0.2]], NAN)}, ROWS, ""),
    ("induction-recency", {"probability": ([[0.3, 0.08], [0.2, 0.2]], 0.01)}, ROWS,
     "the probability of its candidate rises from 0.08 to 0.20: the model prefers recent"),
    ("induction-recency", {"candidate_attention": ([[0.3, 0.4], [0.2, 0.2]], 0.01)}, ROWS | L3H7,
     "L3H7's attention to its candidate falls from 0.40 to 0.20."),
    ("induction-recency", {"last_row": ([[0.0] * 5 + [0.8, 0.2], [0.0] * 5 + [0.2, 0.3]], 0.1)},
     ROWS | L3H7, "In 1 of 2 rows L3H7 attends more to the last candidate"),
    ("induction-recency", {"last_row": ([[0.0] * 5 + [0.8, 0.2], [0.0] * 5 + [0.2, 0.3]], 1)},
     ROWS | L3H7, ""),
    ("recency-patterns", {"pattern": (pattern(0.1, 0.35), 0.01)}, PAIRS | L3H7,
     "L3H7 attends more to the last candidate (0.35) than to the first (0.10)."),
    ("recency-patterns",
     {"pattern": ([pattern(0.1, 0.35), pattern(0.2, 0.1), pattern(0.2, 0.5)], 0.01)},
     PAIRS | {"layer": 3}, "2 of 3 heads of layer 3 attend more … and 1 less."),
    ("equalised-norms", cause(-0.18, 0.02), L3H7,
     "L3H7's attention to the last candidate falls from 0.30 to 0.12 … 0.70, then 0.60"),
    ("equalised-norms",
     {"probability_rise": ([0.1, 0.2], 0.1), "probability_rise_change": (0.1, 0.01)}, {},
     "the rise of the last candidate's probability rises from 0.10 to 0.20."),
]  # fmt: skip

REMOVED = {"params": {"change": "remove"}}
ALONG = {"clean_loss": [NAN, 1.0, 2.0, 3.0], "changed_loss": [NAN, 0.4, 1.5, 2.6]}
MOVED = {"clean": np.zeros((2, 2)), "changed": np.zeros((2, 2)),
         "difference": [[0, 0], [-0.4, 0.4]]}  # fmt: skip
CLEAN = np.array([[0.1, 0.9, 0.2], [NAN, 0.8, 0.2]])
SIZES = {"coordinates": {"group": [1, 5, 10]}}


def masses(changed):
    return {"previous_mass_change": np.subtract(changed, CLEAN), "clean_previous_mass": CLEAN,
            "changed_previous_mass": changed}  # fmt: skip


def candidates(*changed):
    numbers = {"clean_probability": [0.9, 0.1], "changed_probability": [*changed]}
    return "intervention", numbers, {"texts": {"candidates": [" turtle", "\n"]}}


def groups(*changes):
    """The loss by groups of 1 (clean), 5 and 10."""
    numbers, errors = zip((0.0, 0.0), *changes, strict=True)
    return {"loss": [3.2, 3.3, 3.4], "loss_change": (numbers, errors)}


INTERVENTIONS = [
    *(("intervention", {"loss_change": (1.24, 0.1), "mean_clean_loss": 2.0},
       {"params": {"change": "remove"} | params},
       f"{what} raises the loss … by 1.24 nats per token, from 2 in the clean run.")
      for params, what in (
          ({}, "Removing the positional embeddings"),
          ({"embeddings": "tokens"}, "Removing the token embeddings"),
          ({"change": "average", "group": 20}, "Averaging positions in groups of 20"),
          ({"change": "average", "layer": 2}, "positions in groups of 10 before layer 2"),
          ({"change": "blind"}, "Cutting out the previous token at one position in 5"),
          ({"change": "move", "head": "L1H2"}, "Moving the attention of L1H2"),
          ({"change": "move", "edited": "L0H3"}, "Moving the attention of L0H3"),
          ({"change": "ablate", "heads": "L0H3, L1H4"}, "Ablating L0H3, L1H4"),
          ({"change": "ablate", "heads": "L0H3, " * 9}, "Ablating the chosen heads"))),
    ("intervention", ALONG, REMOVED, "lowers the loss … by 0.50 nats per token, from 2 in"),
    ("intervention", {name: each[:2] for name, each in ALONG.items()}, REMOVED, ""),
    (*candidates(0.7, 0.2), "stays “␣turtle” … 0.90 in the clean run and 0.70 in the changed"),
    (*candidates(0.2, 0.7), "changes from “␣turtle” (0.90 in the clean run) to “⏎” (0.70"),
    ("intervention", masses([[0.1, 0.12, 0.2], [NAN, 0.4, 0.2]]), {},
     "2 heads gain or lose 0.3 or more … L0H1 changes most, from 0.90 in the clean run to 0.12."),
    ("intervention", masses([[0.1, 0.9, 0.2], [NAN, 0.8, 0.3]]), {},
     "No head gains or loses 0.3 or more … L1H2 changes most, from 0.20 in the clean run to 0.30."),
    ("intervention", masses(CLEAN), {}, "Every head … as in the clean run."),
    ("intervention", MOVED, {"params": {"change": "remove", "head": "L1H2"}},
     "moves 0.20 of L1H2's attention … a mean over its rows"),
    ("intervention", MOVED | {"difference": np.zeros((2, 2))},
     {"params": {"change": "remove", "head": "L1H2"}}, "L1H2 attends as in the clean run"),
    ("averaging", groups((0.01, 0.1), (0.31, 0.1)), SIZES,
     "from groups of 10 on: by 0.31 nats, from 3.2 in the clean run."),
    ("averaging", groups((0.2, 0.01), (0.31, 0.1)), SIZES, "from groups of 5 on: by 0.20 nats"),
]  # fmt: skip

ONE = {"params": {"head": "L3H7"}}


def looks_back(back, share, first=0):
    """Rows from a query on that give a share to the token so far back, and the rest to key 5."""
    made = np.zeros((11, 11))
    for query in range(back, 11):
        made[query, query - back] += share
        made[query, min(5, query)] += 1 - share
    at = {"coordinates": {"query": np.arange(first, 11)}}
    queries = range(max(first, back), 11)
    mean = np.mean([made[query, query - back] for query in queries])
    place = f"{back} place{'s' * (back > 1)}"
    words = f"L3H7 gives {mean:.2f} of its attention to the token {place} back (limit 0.3)"
    return "own-text-head", {"pattern": made[first:]}, ONE | at, words


SINK, EVEN = np.zeros((7, 7)), np.tril(np.full((7, 7), 0.1))
SINK[:, 0], EVEN[:, 0] = 0.9, 0.2
SEVEN = ONE | {"coordinates": {"query": np.arange(7)}}
OWN_TEXT = [
    ("own-text", {"position_share": [[0.5, 0.97], [0.1, NAN]]}, {},
     "In 2 of 3 heads … 0.5 or more; it is largest in L0H1 (0.97)."),
    ("own-text", {"position_share": [[4.33, 0.97], [0.1, NAN]]}, {},
     "largest in L0H0 (4.33) (above 1, since content works against position)."),
    ("own-text", {"position_share": [[1.004, 0.97], [0.1, NAN]]}, {}, "largest in L0H0 (1)."),
    ("own-text", {"position_share": 0.4, "content_share": 1.2, "covariance_share": -0.6}, L3H7,
     "content explains 1.2 (above 1"),
    *((question, {"position_share": share, "content_share": 0.3}, place,
       f"Position explains {share:.2f} … L3H7's scores {where}, {than} than half … explains 0.30.")
      for share, than in ((0.9, "more"), (0.2, "less"))
      for question, place, where in (("own-text", L3H7, "on this text"),
                                     ("own-text-head", ONE | {"query": 12}, "at token 12"))),
    ("own-text-head", {"position_share": [NAN, 0.9, 0.2, 0.6]}, ONE, "At 2 of 3 tokens … L3H7's"),
    ("own-text", {"position_share": NAN, "content_share": NAN}, L3H7, ""),
    ("own-text-head", {"position_share": [NAN]}, ONE, ""),
    *(looks_back(back, 0.8, first) for back in (1, 2, 3) for first in (0, 6)),
    ("own-text-head", {"pattern": SINK}, SEVEN, "gives 0.90 … to key 0 (limit 0.3)"),
    ("own-text-head", {"pattern": EVEN}, SEVEN,
     "neither key 0 nor any distance up to 3 0.3 … key 0 gets most, 0.20."),
]  # fmt: skip

NAMES = {"texts": {"source": ["positional embedding", "L0H3", "MLP 0"]}}
OF_ALL = np.full((2, 3, 3), NAN)
OF_ALL[1] = [[0.9, 0.1, 0.0], [0.51, 0.4, 0.09], [0.1, 0.2, 0.7]]


def source(shares, errors, noise=0.1, position=0.8):
    return {"share": (shares, errors), "noise": (noise, 0.0), "position_share": (position, 0.0)}


SOURCES = [
    ("head-position-sources", source([0.1, 0.1, 0.8], 0.01), NAMES | ONE,
     "Most of L3H7's … MLP 0 (0.80)."),
    ("position-sources", source([0.8, 0.1, 0.1], 0.01), NAMES | L3H7,
     "Most of L3H7's … from the positional embedding (0.80)."),
    # others against them: two above a half
    ("head-position-sources", source([-0.6, 0.9, 0.7], 0.01), NAMES | ONE,
     "The largest share of L3H7's … 0.90, comes from L0H3."),
    ("head-position-sources", source([0.2, 0.3, 0.5], [0.01, 0.01, 0.02]), NAMES | ONE,
     "The largest share … 0.50, comes from MLP 0."),
    *(("head-position-sources", source([NAN] * 3, [NAN] * 3, *limits), NAMES | ONE,
       f"No shares are given for L3H7 … {why}") for limits, why in (
        ((0.7, 0.3), "0.70 of its positional score is noise of the mean keys (limit 0.5)."),
        ((0.7, 0.01), "position explains 0.01 of its score variance (limit 0.05)."),
        ((0.1, -0.02), "position explains −0.02 of its score variance (limit 0.05)."),
        ((NAN, 0.0), "its positional score is the same for all keys."))),
    ("position-sources", {"share": (OF_ALL * NAN, 0.01)}, NAMES, "No shares … for any head"),
    ("position-sources", {"share": (OF_ALL, 0.01)}, NAMES, "Of 3 heads … 2 get more"),
    ("position-sources", {"mlps_share": ([[0.1, 0.2, 0.3], [0.1, 0.7, 0.3]], 0.01)}, {},
     "In 1 of 6 heads … earlier MLPs is 0.5 or more; it is largest in L1H1 (0.70)."),
    ("position-sources", {"wpos_share": (0.2, 0.01)}, L3H7,
     "Less than half of L3H7's … from the positional embedding (0.20)."),
    ("position-sources", {"heads_share": (0.7, 0.01)}, L3H7,
     "Most of L3H7's … from earlier heads (0.70)."),
]  # fmt: skip


def back(alone, error=0.01):
    """The largest diagonals with both, positions only and tokens only."""
    return {"largest_mass": ([0.9, alone, 0.2], [0.01, error, 0.01]), "largest_offset": [1, 2, 0]}


def attention(position, token, *errors):
    """Both attend most to key 1."""
    spread = [[0.01, 0.01], *([0.01, error] for error in errors)]
    return {"pattern": ([[0.1, 0.9], [0.2, position], [0.2, token]], spread)}


def maps(position, token, *errors):
    """Patterns of seven tokens that give a share to the token two back."""
    patterns = [share * np.eye(7, k=-2) for share in (0.9, position, token)]
    return {"pattern": (patterns, np.reshape([0.01, *errors], (3, 1, 1)))}


def zero(numbers, errors):
    """The probability without a start token, from positions 0 and 1, after that with one."""
    gap = [NAN] * (3 - len(numbers))
    return {"probability": ([*gap, *numbers], [*gap, *errors])}


MASSES, OFFSETS = np.zeros((2, 3, 2, 2))
MASSES[1], OFFSETS[1] = [[0.9, 0.5], [0.8, 0.1]], [[0, 1], [2, 1]]
SCORES = [[0, 0, 9, 0], [1, 5, 2, NAN], [0, 0, 9, 0]]
AGAINST_TOKEN = [
    ("position-vs-token", back(0.8), L3H7,
     "L3H7 gives 0.80 … 2 tokens back (limit 0.3); fed tokens as well … 0.90 (1 token back)."),
    ("position-vs-token", back(0.1), L3H7,
     "L3H7 gives no distance 0.3 … the most is 0.10 (2 tokens back)."),
    ("position-vs-token", {"largest_mass": (MASSES, 0.01), "largest_offset": OFFSETS}, {},
     "2 of 4 heads give 0.3 or more … such as L1H0 (0.80, 2 tokens back)."),
    ("position-vs-token", {"largest_mass": (MASSES, 0.01), "largest_offset": 0 * OFFSETS}, {},
     "none of 4 heads looks back … 0.3 or more"),
    ("position-vs-token", {"score": (SCORES, 0.1)}, ROW,
     "from position 2 is highest at key 1 (1 token back), 3 nats above the next."),
    ("position-vs-token", attention(0.8, 0.1, 0.01, 0.01), ROW,
     "From position 2, L3H7 attends most to key 1 (0.90), more fed positions alone (0.80) "
     "than fed tokens alone (0.10)."),
    ("position-vs-token", maps(0.1, 0.8, 0.01, 0.01), L3H7,
     "L3H7's largest diagonal (2 tokens back) gets 0.90 … less fed positions alone (0.10) than … "
     "(0.80)."),
    ("position-zero", zero((0.05, 0.3), (0.01, 0.01)), L3H7,
     "is less likely … at position 0 (0.05) than … at position 1 (0.30)."),
    ("position-zero", zero((0.5, 0.002, 0.0018), (0.02, 0.001, 0.001)), L3H7,
     "as unlikely … position 1 (0.0018) as at position 0 (0.002); after a start token … likelier "
     "(0.50): position 0 is no exception."),
    ("position-zero", zero((0.7, 0.003, 0.27), (0.01, 0.001, 0.01)), L3H7, "is less likely"),
    ("position-zero", zero((0.5, 0.4, 0.1), (0.01, 0.01, 0.01)), L3H7, "is more likely"),
    ("position-zero", zero((0.5, 0.05, 0.05), (0.01, 0.2, 0.2)), L3H7, ""),
    ("position-zero", zero((0.05, 0.05, 0.05), (0.01, 0.01, 0.01)), L3H7, ""),
]  # fmt: skip

RANDOM = [
    ("random-attention", {"slope": (-0.01, 0.001)}, L3H7 | {"query": 49},
     "L3H7 gives less to recent keys: from position 49 … by −0.01 per key … has 0.02 everywhere."),
    # of several rows the last counts
    ("random-attention", {"slope": ([-0.1, 0.2], 0.01)}, L3H7,
     "L3H7 gives more to recent keys: from position 1 … by 0.20 per key … has 0.50 everywhere."),
    ("random-attention", {"slope": ([[[0, 0.1], [0, -0.1], [0, 0.1]]], 0.01)}, {},
     "2 of 3 heads give more … from position 1, and 1 less."),
    ("random-attention", {"norm_exponent": ([-0.5, 0.1, -0.2], 0.01)}, {},
     "In 2 of 3 heads of layer 0 … falls with position (exponents from −0.50 to −0.20;"),
    ("random-attention", {"norm_exponent": (-0.2, 0.01)}, {"head_of_layer_0": 2},
     "L0H2 falls with position: its exponent is −0.20"),
]  # fmt: skip

WAVES = {"wavelength": [6.28, 50.0, 400.0]}
WEIGHTS = np.array([[0.9, 0.1, 0.2], [0.6, 0.3, 0.3]])
BANDS = {"short_weight": (WEIGHTS, 0.01), "middle_weight": (1 - WEIGHTS, 0.01),
         "long_weight": (0 * WEIGHTS, 0.01)}  # fmt: skip
PATTERNS = {
    "pattern_distance": ([0, 0.1, 0.2, 0.1, 0.7], 0.01),
    "previous_mass": ([0.9, 0.9, 0.9, 0.9, 0.2], 0.01),
    "previous_mass_change": ([0, 0, 0, 0, -0.7], 0.01),
}


def equal(queries, keys):
    return {"mean_share_queries": queries, "mean_share_keys": keys}


def far(number):
    """An equivariant kernel that is that far from the attention."""
    return {"equivariant_attention_distance": number, "attention_distance": (0.1, 0.01)}


def loss(*rises):
    """Changes that raise the loss: pairs with errors; the first is the clean run."""
    numbers, errors = zip((0.0, 0.0), *rises, strict=True)
    return {"loss": np.full(len(numbers), 3.0), "loss_change": (numbers, errors)}


def without(*distances):
    return {"etc": (3.1, 0.1), "band_etc": ([40.2, 3.0, 3.2], 0.1), "band_distance": distances}


ROTARY = [
    ("rotary-spectrum", WAVES | {"swing": ([1.2, NAN, 0.4], 0.1), "phase": [0, 0, 0]}, L3H7,
     "L3H7 … the wavelength of 6.28 tokens: its swing is 1.2 nats, the next largest 0.40."),
    ("rotary-spectrum", WAVES | {"usage": ([0.1, 0.3, 0.6], 0.01)}, L3H7,
     "the wavelength of 400 tokens most: 0.60 of its usage … would be 0.33."),
    *(("rotary-spectrum", equal((queries, 0.01), (keys, 0.01)), L3H7,
       f"{start}: their means hold {queries:.2f} and {keys:.2f} of the mean square (limit 0.5).")
      for queries, keys, start in (
          (0.8, 0.9, "L3H7's queries and keys vary little from token to token"),
          (0.2, 0.1, "L3H7's queries and keys differ from token to token"),
          (0.8, 0.1, "vary little from token to token, but its keys differ from token to token"),
          (0.1, 0.8, "differ from token to token, but its keys vary little from token to token"))),
    ("rotary-spectrum", BANDS, {"params": {"short": 16.0}},
     "Short wavelengths (up to 16 tokens) … in 2 of 6 heads, middle ones in 4, and "
     "long ones in 0."),
    ("rotary-spectrum", {"short_weight": (WEIGHTS, 0.01)}, {},
     "In 2 of 6 heads … short wavelengths is 0.5 or more … largest in L0H0 (0.90)."),
    ("rotary-spectrum", {"mean_share_keys": ([[0.6]], 0.01)}, {},
     "In 1 of 1 head the mean share of keys is 0.5 or more … largest in L0H0 (0.60)."),
    ("rotary-spectrum", {"dominant_wavelength": [[6.28]]}, {}, ""),
    *(("equivariant-kernel", far((number, 0.01)), L3H7,
       f"{says} L3H7's mean attention: their distance is {number:.2f} (limit 0.5) … kernel 0.10.")
      for number, says in ((0.2, "is near"), (0.7, "is far from"))),
    ("equivariant-kernel",
     {"equivariant_attention_distance": ([[0.2, 0.8], [0.49, NAN]], 0.02)}, {},
     "of 1 of 3 heads (distance below 0.5; 1 more can't be told)."),
    ("equivariant-kernel", {"positional_logit": ([0.1, 2.3, -1.0, NAN], 0.2)}, L3H7,
     "highest at offset 1: 2.3 nats above its mean"),
    ("equivariant-kernel", without([0.61, 0.1, 0.0], 0.01), L3H7,
     "Without its short wavelengths … by a distance of 0.61, to 40.2 effective tokens from 3.1."),
    ("changed-bands", loss((0.1, 0.01), (0.5, 0.01)), {"params": {"heads": ""}},
     "Freezing the middle wavelengths in all heads raises the loss most, by 0.50 nats, from 3 in"),
    ("changed-bands", loss((0.49, 0.01), (0.5, 0.01)), {"params": {"heads": "L0H1"}},
     "Freezing the middle wavelengths in the chosen heads raises the loss by 0.50 nats, from 3"),
    ("changed-bands", PATTERNS, ONE | L3H7,
     "Removing the short wavelengths moves L3H7's attention most, by a distance of 0.70 … falls "
     "from 0.90 to 0.20."),
    ("changed-bands", PATTERNS, {"params": {"head": "L0H7"}} | L3H7, ""),
]  # fmt: skip

EFFECTS = ("standing_first", "position_zero", "start_token", "key_effect", "query_effect")


def anatomy(*effects, error=0.01, sink=0.8):
    numbers = dict(zip(EFFECTS, ((each, error) for each in effects), strict=True))
    return {"sink": (sink, 0.01), **numbers}


ANATOMY = [  # certain effects are told, small ones denied, open ones left out
    *(("sink-anatomy", anatomy(*effects), L3H7, words) for effects, words in (
        ((0.3, -0.01, 0.6, 0.07, 0.8),
         "follows what stands first (+0.30) and the start token (+0.60), not position 0 (−0.01), "
         "where the start token acts through the queries after it (+0.80)."),
        ((-0.14, 0.39, 0.2, 0.2, 0.0),
         "follows position 0 (+0.39) and the start token (+0.20), and less what stands first "
         "(−0.14), where the start token acts through its key (+0.20)."),
        ((0.0, NAN, 0.7, 0.4, 0.3),
         "follows the start token (+0.70), not what stands first (0), where the start token acts "
         "through its key (+0.40) and the queries after it (+0.30)."),
        ((0.5, 0.1, 0.0, 0.3, 0.0),
         "L3H7's sink follows what stands first (+0.50), not the start token (0)."),
        ((0.0, 0.0, 0.0, 0.0, 0.0), ""),
        ((0.1, 0.1, 0.1, 0.5, 0.5), ""))),
    ("sink-anatomy", anatomy(*[NAN] * 5, error=NAN, sink=0.12), L3H7,
     "L3H7 gives the first key 0.12 of its attention: weakly a sink (limit 0.3)."),
    ("sink-anatomy", anatomy(*[NAN] * 5, error=NAN, sink=0.29), L3H7, ""),
    ("sink-anatomy",
     dict.fromkeys(EFFECTS, (np.full((1, 2), NAN), NAN)) | {"sink": ([[0.1, 0.2]], 0.01)}, {},
     "In none of 2 heads … 0.3 or more; it is largest in L0H1 (0.20)."),
]  # fmt: skip

ROW_OF_SCORES = np.random.default_rng(1).standard_normal((5, 5))
PARTS = ["embedding", "L0H0", "L0H1", "MLP 0", "constant"]


def components(*, alibi=False, mean=ROW_OF_SCORES, **entries):
    """A table that is larger than its row's mean at `at<query component>_<key component>`."""
    table = mean.copy()
    for place, value in entries.items():
        table[int(place[2]), int(place[4])] += value
    numbers = {
        "component_score": table,
        "mean_component_score": mean,
        "counted": [0, 0, 0, 1, 1, 1, 1],
        "chosen_query": 6.0,
        "chosen_key": 5.0,
        "score": np.zeros(7),
        "query_margin": np.zeros((5, 7)),
        "key_margin": np.zeros((5, 7)),
        **({"alibi_bias": -0.5 * np.arange(7)[::-1]} if alibi else {}),
    }
    params = ScoreComponents.params(head="L1H2", text="x", key=5, other=2).model_dump()
    return "score-components", numbers, {
        "params": params, "texts": {"query_names": PARTS, "key_names": PARTS},
    }  # fmt: skip


COMPONENTS = [  # the largest pair in the direction of the whole
    (*components(at3_1=5.83, at0_0=0.4, at2_2=-0.1),
     "Key 5 lies 6.1 nats above its row's mean; the largest pair makes 5.8: what L0H0 wrote "
     "there, asked for by what MLP 0 wrote at query 6."),
    (*components(at4_0=-2.0, at0_3=1.5),
     "Key 5 lies 0.5 nats below … makes 2.0: the token embedding there, asked for by the constant"),
    (*components(at1_1=2.0, at0_0=1.5, at2_2=-2.5), "1.0 nats above … makes 2.0: what L0H0 wrote"),
    (*components(at0_0=1.0, at1_1=-1.05), ""),
    # the bias at key 5 is −0.5, its mean over keys 3 to 6 is −0.75; it makes no pair
    (*components(alibi=True, mean=np.zeros((5, 5)), at1_2=1.0),
     "Key 5 lies 1.2 nats above … makes 1.0: what L0H1"),
    ("score-components", {"key_margin": np.zeros((5, 7))}, {}, ""),
]  # fmt: skip

NEURONS, NEURON = "contextual-neurons", {"params": {"neuron": 3}}
BAG = [
    (NEURONS, {"drive_share": ([0.1, 0.7, 0.9], 0.01)}, {},
     "In 2 of 3 neurons … 0.5 or more … largest in neuron 2 (0.90)"),
    (NEURONS, {"drive_share": (0.2, 0.01)}, {"neuron": 3},
     "part of neuron 3 has 0.20 … less than 0.5"),
    *((NEURONS, {"bag_centred_r2": ([[0.0] * 3, [r2] * 3], 0.01)}, {}, words) for r2, words in (
        (0.6, "3 of 3 posi … above 0.25"), (0.1, "3 of 3 posi … below 0.25"))),
    (NEURONS, {"bag_centred_r2": np.full((2, 3), NAN)}, {}, ""),
    (NEURONS, {"kernel": [0.5, 0.5, 0, 0, 0]}, {}, "2 effective tokens, of 5 that position 4"),
    ("neuron", {"contribution": [4.0, -1, -1, -1, -1, NAN]}, NEURON,
     "neuron 3 adds 2 standard deviations … against it 0.50 less"),
    ("neuron", {"contribution": [0.1, 0.1, 0.1]}, NEURON, ""),
    ("neuron", {"related": [0.2, -0.9, 0.5, 1], "output_cosine": [0, 0.3, 0, 1]}, NEURON,
     "neuron 1 … the opposite contexts as neuron 3 (correlation −0.90) … is 0.30"),
    *(("neuron-trace", {"r2": r2, "sign_agreement": 0.95}, NEURON, words) for r2, words in (
        (0.7, " 3 … better … R² 0.70 … at 0.95"), (-0.3, "no better … R² −0.30"), (NAN, ""))),
    ("neuron-latents", {"share": [0.6, 0.1]}, NEURON, "explains 0.60 of neuron 3 … one context"),
    ("neuron-latents", {"share": [0.3, 0.1]}, NEURON, "only 0.30 of neuron 3 … a mixture"),
    ("extended-embedding", {"cosine": [0.8, 0.7], "plain_cosine": [0.4, 0.1]},
     {"params": {"word": " server"}, "texts": {"words": [" client", " host"]}},
     "“␣client” is nearest to “␣server” … 0.80, and 0.40 between their plain"),
    ("word-neurons", {"score": [1.0, 4.2, -5]}, {},
     "Of 3 neurons … neuron 1 most … add 4.2 stand"),
]  # fmt: skip

LONG = {"params": {"length": 97}}
BOTH_ANGLES = LONG | {"texts": {"scaling": ["own", "linear"]}}
CHANGE = [[0.0, 0.1, 0.2], [0.0, 0.5, 0.95]]


def slopes(alpha, upper, error=0.01):
    return {"alpha": (alpha, error), "alpha_upper": (upper, error)}


DILUTION = [
    ("dilution", slopes(0.1, 0.05), L3H7, "L3H7 keeps its reach … 0.10 and 0.05 (upper half)"),
    ("dilution", slopes(0.98, 0.9), L3H7, "L3H7 spreads over all … 0.98 and 0.90 (upper half)"),
    *(("dilution", slopes(*pair), L3H7, "")  # both slopes must say so
      for pair in ((0.1, 0.5), (0.5, 0.1), (0.9, 0.5), (0.5, 0.9), (0.5, 0.5))),
    ("dilution", slopes([[0.1, 0.2, 0.5], [0.8, 0.9, 0.5]], [[0.1, 0.5, 0.1], [0.8, 0.9, 0.9]]), {},
     "below 0.25 in 1 of 6 heads … 0.75 or more in 2"),
    ("dilution", slopes([[0.5, 0.1]], [[0.1, 0.5]]), {}, ""),
    ("dilution", slopes(NAN, NAN, NAN), L3H7 | {"texts": {"no_slope": "fewer than three queries"}},
     "L3H7 has no slope: fewer than three queries."),
    *(("longer-contexts", {"longest_distance": (gap, 0.01)}, LONG | L3H7, words)
      for gap, words in ((0.7, "another kernel: 0.70 from that at 97 tok"), (0.5, ""), (0.3, ""),
                         (0.1, ""), (0.05, "nearly the same kernel: 0.05 from"))),
    ("longer-contexts", {"longest_distance": ([[0.1, 0.2, 0.5], [0.8, 0.9, 0.5]], 0.01)}, LONG,
     "In 5 of 6 heads the distance … (own angles"),
    *(("longer-contexts", {"loss_change": (CHANGE, error)}, BOTH_ANGLES, words)
      for error, words in ((0.05, "+0.2 nats (own angles), +0.95 nats (linear"),
                           (0.2, "97 tokens: +0.95 nats"), (1.0, ""))),
]  # fmt: skip

ANGLES = np.zeros((3, 3, 2))
ANGLES[0, 2] = 10, 80.5
SUBSPACES = {"angles_residual": ANGLES, "angles_position": ANGLES / 2}


def held(*shares):
    """Layers whose first three components hold some of the variance each."""
    return {"explained_variance": [[each / 2, each / 4, each / 4, 0.01] for each in shares]}


HELIX = [
    ("helix", held(0.91, 0.95, 0.5), {}, "0.85 or more … 2 of 3 layers (0.91 before layer 0)"),
    ("helix", held(0.8, 0.1), {}, "hold less than 0.85 … (0.80 before layer 0)"),
    ("helix", {"explained_variance": [0.5, 0.3, 0.1]}, {"layer": 2}, "(0.90 before layer 2)"),
    ("helix", SUBSPACES, {"params": {"subspace": 2}},
     "to layer 2 the top-2 … 80.5° in the residual … 40.2° in position"),
    ("helix", {"far_share": [0.3, 0.5, 0.1]}, {"params": {"far": 2.0}},
     "beyond 2 rms … falls from 0.30 before layer 0 to 0.10 before layer 2"),
    *(("helix", nothing, {}, "") for nothing in (  # of one layer, or of no variance
        held(0, 0), {name: each[:1, :1] for name, each in SUBSPACES.items()},
        {"far_share": [0.3]}, {"projection": np.zeros((2, 3, 3))})),
]  # fmt: skip


def replaced(tenth, five_percent, error):
    return {"heads_for_tenth": (tenth, error), "heads_for_5_percent": (five_percent, error)}


KERNEL_ONLY = [
    *(("kernel-only-head", {"kernel_only_share": share, "kernel_only_cost": cost}, ONE, words)
      for share, cost, words in (
          ((0.84, 0.02), (0.02, 0.0005), "keeps 0.84 of what the head gives the model, at a cost "
           "of 0.02 nats a token: position carries its effect (limit 0.5)."),
          ((0.1, 0.05), (0.05, 0.002), "at a cost of 0.05 nats a token."),
          ((0.5, 0.05), (0.05, 0.002), "If L3H7 attends by its kernel alone, the model loses 0.05 "
           "nats a token."),
          ((NAN, NAN), (-0.02, 0.002), "the model gains 0.02 nats a token."),
          ((NAN, NAN), (0.002, 0.002), ""))),
    *(("heads-replaced", numbers, {"coordinates": {"heads": [1, 16, 32]}}, words)
      for numbers, words in (
          (replaced([27.0, 20.0], [31.5, 22.0], [1.0, 0.4]),
           "For 0.1 nats a token, 25 to 29 of 32 heads"),
          (replaced([27.0, 20.0], [31.5, 22.0], 0.4), "for 5 % of the loss, 31 to 32 (95"),
          (replaced([NAN, NAN], [NAN, NAN], NAN), ""))),
]  # fmt: skip

SAID = [*INDUCTION, *INTERVENTIONS, *OWN_TEXT, *SOURCES, *AGAINST_TOKEN, *RANDOM, *ROTARY, *ANATOMY,
        *COMPONENTS, *BAG, *DILUTION, *HELIX, *KERNEL_ONLY]  # fmt: skip


@pytest.mark.parametrize(("question", "numbers", "more", "words"), SAID)
def test_said(question, numbers, more, words):
    """The words between dots of omission, in this order; nothing where there are none."""
    sentence = found(question, numbers, **more)
    assert bool(words) == bool(sentence)
    assert re.search(".*".join(map(re.escape, words.split(" … "))), sentence), sentence


def along(number, error):
    """Losses of three tokens whose changes have that mean and error."""
    rise = number + error * np.sqrt(3) * np.array([-1.0, 0, 1])
    clean = np.array([NAN, 1, 1, 1])
    return {"clean_loss": clean, "changed_loss": clean + np.append(0, rise)}


# of a number with its error: limit, question, what else is chosen, and its results
OPEN = [
    (0.3, "induction-scores", L3H7, lambda v, e: {"induction": (v, e)}),
    (0.3, "induction-scores", {}, lambda v, e: {"induction": ([[v, 0.1]], [[e, 0.01]])}),
    (0, "equalised-norms", L3H7, cause),
    (0, "intervention", REMOVED, lambda v, e: {"loss_change": (v, e), "mean_clean_loss": 2.0}),
    (0, "intervention", REMOVED, along),
    (0, "averaging", SIZES, lambda v, e: groups((0.2, 0.01), (v, e))),
    (0.5, "position-sources", L3H7, lambda v, e: {"heads_share": (v, e)}),
    (0, "head-position-sources", NAMES | ONE,
     lambda v, e: source([0.3 + max(v, 0), 0.3 + max(-v, 0), 0.2], [e, 0, 0])),
    (0.3, "position-vs-token", L3H7, back),
    (0.3, "position-vs-token", {},
     lambda v, e: {"largest_mass": (np.full((3, 1, 1), v), e),
                   "largest_offset": np.ones((3, 1, 1))}),
    (0, "random-attention", L3H7 | {"query": 49}, lambda v, e: {"slope": (v, e)}),
    (0, "random-attention", {}, lambda v, e: {"slope": ([[[v]]], e)}),
    (0, "random-attention", {}, lambda v, e: {"norm_exponent": ([v], e)}),
    (0, "random-attention", {"head_of_layer_0": 0}, lambda v, e: {"norm_exponent": (v, e)}),
    (0.5, "rotary-spectrum", L3H7, lambda v, e: equal((v, e), (0.9, 0.01))),
    (0.5, "rotary-spectrum", L3H7, lambda v, e: equal((0.9, 0.01), (v, e))),
    (0.5, "rotary-spectrum", {}, lambda v, e: {"short_weight": ([[v]], e)}),
    (0.5, "rotary-spectrum", {}, lambda v, e: {"mean_share_queries": ([[v]], e)}),
    (0.5, "equivariant-kernel", L3H7, lambda v, e: far((v, e))),
    (0.5, "equivariant-kernel", {}, lambda v, e: {"equivariant_attention_distance": ([[v]], e)}),
    (0, "changed-bands", {"params": {"heads": ""}}, lambda v, e: loss((v, e))),
    (0.5, NEURONS, {"neuron": 3}, lambda v, e: {"drive_share": (v, e)}),
    (0.5, NEURONS, {}, lambda v, e: {"drive_share": ([v, 0.1], [e, 0.01])}),
    (0.25, NEURONS, {}, lambda v, e: {"bag_centred_r2": ([[v] * 3], e)}),
    (0.25, "dilution", L3H7, lambda v, e: {"alpha": (v, e), "alpha_upper": (0.1, 0.01)}),
    (0.75, "dilution", L3H7, lambda v, e: {"alpha": (0.9, 0.01), "alpha_upper": (v, e)}),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "question", "more", "make"), OPEN)
@given(data=st.data())
def test_nothing_where_the_interval_holds_the_limit(limit, question, more, make, data):
    assert "" == found(question, make(*data.draw(uncertain(limit))), **more)


# of two numbers with their errors
ALIKE = [
    ("induction-recency", ROWS, lambda v, e: {"probability": (np.array(v)[:, None],
                                                              np.array(e)[:, None])}),
    ("recency-patterns", PAIRS | L3H7, lambda v, e: {"pattern": (pattern(*v), pattern(*e))}),
    ("position-vs-token", ROW, lambda v, e: attention(*v, *e)),
    ("position-vs-token", L3H7, lambda v, e: maps(*v, *e)),
    ("position-vs-token", L3H7 | {"query": 1},
     lambda v, e: {"score": ([[0, 0], v, [0, 0]], [[0, 0], e, [0, 0]])}),
    ("position-zero", L3H7, zero),
    ("rotary-spectrum", L3H7, lambda v, e: {"wavelength": [6.28, 50.0], "swing": (v, e),
                                            "phase": [0, 0]}),
    ("rotary-spectrum", L3H7, lambda v, e: {"wavelength": [6.28, 50.0], "usage": (v, e)}),
    ("equivariant-kernel", L3H7, lambda v, e: {"positional_logit": (v, e)}),
    ("equivariant-kernel", L3H7, lambda v, e: {"etc": 3.0, "band_etc": [3.0, 3.0],
                                               "band_distance": (v, e)}),
]  # fmt: skip


@pytest.mark.parametrize(("question", "more", "make"), ALIKE)
@given(pair=alike())
def test_nothing_without_a_certain_difference(question, more, make, pair):
    assert "" == found(question, make(*pair), **more)


@given(alike())
def test_nothing_is_most_without_a_certain_difference(pair):
    said = found("changed-bands", loss(*zip(*pair, strict=True)), {"heads": ""})
    assert "most" not in said
