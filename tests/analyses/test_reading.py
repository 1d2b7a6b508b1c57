"""Readings of heads: what is claimed, in which order, what is open, and what is not said."""

import math
import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.claims import Head
from poskernel_core.analyses.head_measures.views import measure_texts, measures_table, rank_texts
from poskernel_core.analyses.kernel_only.spec import EXACT
from poskernel_core.analyses.reading import CLAUSES, read
from poskernel_core.analyses.views import finding_of
from poskernel_core.api import build_request
from poskernel_core.common.result import Result, texts_array
from poskernel_core.models.stored import RESULTS
from tests.support import builders
from tests.support.made_findings import check, made
from tests.support.refusals import refused

NAN = math.nan
PARAMS = {
    "etc": {"local_tokens": 10, "local_share": 0.5, "uniform_share": 0.5},
    "contextual-heads": {"duplicates": 0.3, "local": 0.5, "broad": 30.0, "steady": 0.25},
    "sinks": {"threshold": 0.3},
}
KERNEL = ("local_mass", "etc", "attention_distance", "visible_keys")
MECHANISMS = ("negative self-attention", "aggregator", "by position")

pytestmark = pytest.mark.usefixtures("near_workers")


def answer(question, labels=None, **numbers):
    """An answer about the one head of one layer: each number with its error, or alone."""
    pairs = {name: each if isinstance(each, tuple) else (each,) for name, each in numbers.items()}
    values = {name: np.array([[each[0]]], dtype=float) for name, each in pairs.items()}
    return Result(
        analysis=question,
        params=PARAMS.get(question, {}),
        values=values,
        axes=dict.fromkeys(values, ("layer", "head")),
        units=dict.fromkeys(values, ""),
        errors={n: np.array([[each[1]]]) for n, each in pairs.items() if len(each) > 1},
        labels=labels or {},
    )


def reading(*answers):
    return read({each.analysis: each for each in answers}, 0, 0)


def said(*answers):
    return reading(*answers).verdict("L0H0")


def kernel(mass=(0.1, 0.01), etc=(40.0, 1.0)):
    """An answer about the kernel, over 100 visible keys; it predicts the attention."""
    return answer("etc", local_mass=mass, etc=etc, visible_keys=100.0,
                  attention_distance=(0.1, 0.01))  # fmt: skip


def contextual(etc=80.0, spread=(0.1, 0.01), far=(0.0, 0.01)):
    """An answer about denominators, and duplicates that get nothing unless it is said."""
    extra = {"near_duplicates": (0.0, 0.01), "far_duplicates": far}
    return answer("contextual-heads", group=3, etc=etc, denominator_cv=spread, **extra)


def look_back(offset, mass, kind="by position"):
    """An answer about the largest diagonal."""
    labels = {"kind": MECHANISMS}
    return answer("previous-token", labels, largest_offset=offset, largest_mass=mass,
                  kind=MECHANISMS.index(kind))  # fmt: skip


def induction(score):
    return answer("induction-scores", induction=(score, 0.01))


def sinks(first, learned):
    return answer("sinks", sink=(first, 0.01), learned_sink=(learned, 0.01))


def anatomy(first, zero, start):
    names = ("standing_first", "position_zero", "start_token")
    return answer("sink-anatomy", **dict(zip(names, (first, zero, start), strict=True)))


def foreseen(share, gain, visible=401.0):
    return answer(
        "foreseen-attention", share_32=(share, 0.01), gain_32=(gain, 0.01), visible_keys=visible
    )


def shares(position, content):
    return answer("score-variance", position_share=(position, 0.01), content_share=(content, 0.01))


def both(share):
    return answer("place-and-content", both_share=(share, 0.01))


def dilution(slope, upper):
    return answer("dilution", alpha=(slope, 0.01), alpha_upper=(upper, 0.01))


def sources(*shares):
    """An answer in which the positional embedding, L0H3 and MLP 0 have shares with errors."""
    share, error = (np.array(each, dtype=float)[None, None] for each in zip(*shares, strict=True))
    return replace(
        answer("position-sources"),
        values={"share": share},
        errors={"share": error},
        axes={"share": ("layer", "head", "component"), "source": ("component",)},
        units={"share": "", "source": ""},
        texts={"source": texts_array(["positional embedding", "L0H3", "MLP 0"])},
    )


CASES = {
    "open whether local": (
        kernel(mass=(0.51, 0.01)),
        "(a local kernel or not: its interval holds the limit",
    ),
    "open whether uniform": (
        kernel(etc=(51.0, 1.0)),
        "(a uniform kernel or not: its interval holds",
    ),
    "no key": (answer("etc", **dict.fromkeys(KERNEL, (NAN, NAN))), ""),
    "previous": (
        look_back(1, (0.87, 0.01)),
        "L0H0 gives the previous token 0.87 of its attention by position (a previous-token head).",
    ),
    "aggregating": (look_back(1, (0.87, 0.01), "aggregator"), "at what earlier heads wrote there"),
    "itself": (look_back(0, (0.5, 0.01)), "gives the current token 0.50 of its attention (a head "),
    "open whether previous": (look_back(1, (0.3, 0.01)), "(a previous-token head or not"),
    "hardly previous": (look_back(1, (0.2, 0.01)), "Weakly a previous-token head (0.20)."),
    "induction": (
        induction(0.9),
        "L0H0 gives the token after the earlier duplicate 0.90 of its attention (an induction "
        "head).",
    ),
    "a trace of it": (induction(-1e-8), "No induction (below 0.001)."),
    "open whether induction": (
        induction(0.31),
        "(an induction head or not: its interval holds the limit 0.3",
    ),
    "sink of the first": (
        anatomy((0.6, 0.01), (0.02, 0.01), (0.13, 0.01)),
        "L0H0's sink follows what stands first (+0.60) and the start token (+0.13), not position 0 "
        "(+0.02).",
    ),
    "sink of position": (
        anatomy((0.0, 0.01), (0.2, 0.01), (-0.4, 0.01)),
        "follows position 0 (+0.20), not what stands first (0), and less the start token (−0.40).",
    ),
    "open whether contextual": (contextual(spread=(0.24, 0.01)), "(a contextual head or not"),
    "unsteady": (contextual(spread=(0.4, 0.01)), "Not drawn to duplicates (below 0.001)."),
    "narrow": (contextual(etc=20.0), "Not drawn to duplicates (below 0.001)."),
    "foreseen, better": (
        foreseen(0.68, 0.12),
        "32 of 401 keys chosen by L0H0's kernel, the first ones among them, get 0.68 of its mean "
        "attention, more than the first 4 and the last 28 keys get (0.56).",
    ),
    "foreseen as well": (foreseen(0.68, 0.01), "get 0.68 of its mean attention."),
    "foreseen with the same keys": (foreseen(0.68, 0.0), "get 0.68 of its mean attention."),
    "hardly foreseen": (foreseen(0.51, 0.12), ""),
    "foreseen with half of the keys": (foreseen(0.68, 0.12, 63.0), ""),
    "not known whether foreseen": (foreseen(NAN, NAN), ""),
    "shared": (
        shares(0.4, 0.45),
        "Position (0.40) and content (0.45) share the variance of L0H0's",
    ),
    "reach": (dilution(0.1, 0.0), "L0H0 keeps its reach as more keys become visible: the slopes"),
    "bent": (dilution(0.9, 0.1), ""),
    "open reach": (dilution(0.1, 0.249), ""),
    "from an MLP": (
        sources((0.01, 0.01), (0.2, 0.01), (0.79, 0.02)),
        "Most of L0H0's positional score comes from MLP 0 (0.79).",
    ),
    "from two": (sources((0.9, 0.01), (0.8, 0.01), (-0.7, 0.01)), ""),
    "perhaps from two": (sources((0.9, 0.01), (0.48, 0.02), (-0.38, 0.01)), ""),
    "perhaps from one": (sources((0.51, 0.01), (0.48, 0.001), (0.01, 0.01)), ""),
    "open whether both": (both(0.51), ""),
    "hardly both": (both(0.1), ""),
}


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case):
    given, expected = CASES[case]
    found = said(given)
    assert expected in found
    if not expected or expected.endswith("."):
        assert found.endswith(expected)
        assert bool(expected) == bool(found)


def test_one_order():
    """The largest share of attention, what explains it, what the head does; the rest below."""
    answers = (
        induction(0.6), dilution(0.1, 0.0), shares(0.92, 0.05), kernel(mass=(0.9, 0.01)),
        look_back(1, (0.37, 0.01)), sinks(0.5, 0.0),
    )  # fmt: skip
    found = reading(*answers)
    parts = ["L0H0 gives the first key", "by position alone it", "it gives the token after the"]
    said = found.verdict("L0H0").split("; ")
    assert parts == [part[: len(start)] for part, start in zip(said, parts, strict=True)]
    rest = [("previous-token", "It gives the prev"), ("score-variance", "Position explains"),
            ("etc", "Its mean atte"), ("dilution", "It keeps")]  # fmt: skip
    assert rest == [
        (question, text[: len(start)])
        for (question, text), (_, start) in zip(found.rest(), rest, strict=True)
    ]
    assert found.claims == reading(*reversed(answers)).claims
    assert "sink" == found.headline


@pytest.mark.parametrize(("sink", "back", "first"), [(0.5, 0.4, "sink"), (0.4, 0.5, "look back")])
def test_the_larger_share_of_attention_comes_first(sink, back, first):
    found = reading(look_back(1, (back, 0.01)), sinks(sink, 0.0))
    assert first == found.headline == found.claims[0][1].predicate


@pytest.mark.parametrize(("far", "repeated", "told"), [
    (0.15, 0.49, "in repeated random tokens it gives the earlier duplicate 0.49"),
    (0.6, 0.49, "it gives far duplicates of the current token 0.60 more"),
    (0.15, 0.1, "it gives far duplicates of the current token 0.15 more"),
])  # fmt: skip
def test_of_two_measures_of_one_thing_the_stronger_speaks(far, repeated, told):
    random = answer("induction-scores", induction=(0.0, 0.01), duplicate=(repeated, 0.01))
    for pair in permutations((random, contextual(far=(far, 0.01)))):
        claims = [claim for _, claim in reading(*pair).claims if claim.predicate == "duplicates"]
        assert 1 == len(claims)
        assert claims[0].named().startswith(told)


def test_a_diagonal_of_the_scores_beside_none_of_the_attention():
    """One clause, since the two seem to contradict each other."""
    named = ("dark main diagonal", "bright first diagonal", "neither")
    for code, told in ((0, "no diagonal gets 0.03, with a dark main diagonal in the scores"),
                       (2, "no diagonal gets 0.03 (0.001)")):  # fmt: skip
        result = look_back(5, (0.001, 0.01))
        result.values["diagonal"] = np.array([[float(code)]])
        result.labels["diagonal"] = named
        assert told in said(result).lower()


def test_what_is_open_gives_way():
    found = reading(induction(0.31), dilution(0.1, 0.0), kernel(), shares(0.9, 0.0))
    assert "duplicate" not in found.verdict("L0H0")
    assert "It gives the token after" in found.rest()[-1][1]


@pytest.mark.parametrize(
    ("first", "told"), [(0.6, True), (0.31, True), (0.1, True), (0.001, False)]
)
def test_nothing_is_said_of_a_sink_that_is_none(first, told):
    """In the texts of its anatomy, a head may have a sink that it lacks in those of the run."""
    found = said(sinks(first, 0.0), anatomy((0.6, 0.01), (0.0, 0.01), (0.0, 0.01)))
    assert told == ("sink follows" in found)


def swings(*numbers, error=0.01):
    result = answer("rotary-spectrum")
    result.values["wavelength"] = np.array([[7.0, 23.0, 41.0]])
    result.values["swing"] = np.array([[numbers]])
    result.errors["swing"] = np.where(np.isnan(numbers), NAN, error)[None, None]
    return result


def test_a_wavelength():
    assert "moved most by the wavelength of 23 tokens" in said(swings(NAN, 1.0, 0.5))
    assert "" == said(swings(NAN, 1.0, 0.99))
    assert "" == said(swings(NAN, NAN, NAN))


def test_numbers_that_print_alike_are_not_compared():
    assert "next largest" not in said(swings(1.5, 1.499, NAN, error=1e-6))
    assert "the next largest 1.4." in said(swings(1.5, 1.4, NAN, error=1e-6))
    for gain, told in ((0.001, False), (0.1, True)):
        found = answer("foreseen-attention", share_32=(0.68, 1e-6), gain_32=(gain, 1e-6),
                       visible_keys=401.0)  # fmt: skip
        assert told == ("more than the first 4" in said(found))


@pytest.mark.parametrize(("groups", "open_"), [(0, False), (10, False), (2, True)])
def test_few_groups_claim_little(groups, open_):
    """Five errors above the limit: enough of all samples (1.96) and ten groups, not of two."""
    found = induction(0.35)
    found.provenance.update(errors="documents", groups=groups)
    assert open_ == ("or not" in said(found))


@pytest.mark.parametrize("groups", [0, 10])
def test_a_wavelength_of_few_groups(groups):
    """The two swings are 2.1 errors of their difference apart: 1.96 are fewer, 2.26 are more."""
    result = swings(1.0, 1.0 - 2.1 * 0.05, NAN)
    result.errors["swing"] = np.array([[[0.03, 0.04, NAN]]])
    result.provenance.update(errors="documents", groups=groups)
    assert bool(groups) == ("" == said(result))


@pytest.mark.parametrize(("low", "high", "passes"), [(0.31, 0.4, "yes"), (0.2, 0.4, "about")])
def test_ends_of_an_interval_that_are_known(low, high, passes):
    result = induction(0.35)
    result.lows["induction"], result.highs["induction"] = np.array([[low]]), np.array([[high]])
    assert passes == Head(result, (0, 0)).number("induction").passes(0.3)


TOGETHER = [
    ({"local kernel"}, {"a contextual head"}),
    ({"local kernel", "keeps its reach"}, {"spreads over all there is"}),
    ({"uniform kernel"}, {"keeps its reach"}),
    ({"no sink"}, {"(a sink)", "sink follows"}),
    ({"no diagonal gets 0.03"}, {"previous-token head", "tokens back"}),
    ({"position explains"}, {"content explains", "content together would explain"}),
    ({"far from it"}, {"near it"}),
    ({"an induction head"}, {"no induction"}),
    ({"a duplicate-token head"}, {"not drawn to duplicates"}),
]
"""Words of which one head's reading has at most those of one side."""


@pytest.mark.parametrize("model", sorted(each.name for each in RESULTS.iterdir()))
def test_no_head_of_a_shipped_model_contradicts_itself(model, shipped):
    missing = ",".join(shipped.missing(build_request("verdicts", model)[0]))
    found = shipped.cached(build_request("verdicts", model, params={"leave_out": missing})[0])
    for place in np.ndindex(found.texts["verdict"].shape):
        lines = [found.texts["verdict"][place], *found.texts["claim"][place]]
        told = re.sub(r"\([^()]* or not: [^)]*\)", "()", "; ".join(lines).lower())
        assert told.count("(") == told.count(")")
        assert lines[0].count("; ") < CLAUSES
        for one, other in TOGETHER:
            assert not (any(w in told for w in one) and any(w in told for w in other)), told


def test_recency_is_told_of_heads_that_do_induction():
    """A head that looks one token back reaches a candidate that comes to stand there."""
    for far, told in ((0.2, True), (0.01, False)):
        attention = np.array([[far, far], [far, 0.8]])
        result = made(
            "induction-recency",
            {"candidate_attention": attention},
            {"candidate_attention": 0.01},
            chosen={"layer": 16, "head": 0},
        )
        assert told == bool(finding_of(result))


def test_an_estimate_claims_nothing():
    """The verdict of a head uses exact costs only: the error of an estimate misses its bias."""
    numbers = {"kernel_only_share": [[0.9]], "kernel_only_cost": [[0.02]]}
    errors = {"kernel_only_share": 0.01, "kernel_only_cost": 0.001}
    estimate, exact = (
        made("kernel-only-cost", numbers | {"exact": [[code]]}, errors, labels={"exact": EXACT})
        for code in (0, 1)
    )
    assert "" == said(estimate) == finding_of(estimate)
    check(said(exact), "L0H0's kernel alone keeps 0.9", "(position carries its effect)")
    check(finding_of(exact), "1 of 1 exact cost", "0.01 nats a token or more")


def verdicts(engine, model, context, windows, **params):
    return pk.show(
        "verdicts", str(model), engine=engine, context=context, windows=windows, params=params
    )


def test_a_head_made_to_look_back(tmp_path, engine):
    path = builders.look_back(tmp_path / "model", 1, 37)
    out = [name for name, each in ANALYSES.items() if each.measures]
    out = [name for name in out if name not in ("etc", "previous-token")]
    found = verdicts(engine, path, 37, 5, query=36, leave_out=",".join(out))
    sentences = found.texts["verdict"][0].tolist()
    assert "the previous token" in sentences[0]
    assert not any("the previous token" in each for each in sentences[1:])
    assert not any(word in each for each in sentences for word in ("induction", "contextual"))
    left = {ANALYSES[name].title for name in out}
    assert ANALYSES["induction-scores"].title in found.words("unknown")
    assert set(found.words("unknown")) < left  # this model has no rotary positions

    head = found.select(layer=0, head=0)
    place = head.words("measure").index("attention to the previous token")
    assert "1 of 6" == rank_texts(head)[place]
    texts = measure_texts(head)
    assert "local" == texts[head.words("measure").index("kind of kernel")]
    assert "" == rank_texts(head)[head.words("measure").index("kind of kernel")]
    assert texts == list(measures_table(head).data[0].cells["values"][1])


def test_a_position_that_one_question_leaves_out(engine):
    """Dilution takes some of the recorded positions; the verdict is still there at any of them."""
    asked = {"engine": engine, "context": 64, "windows": 5}
    every = pk.show("etc", "demo-attn-2l", **asked).coordinates["query"]
    some = pk.show("dilution", "demo-attn-2l", **asked).coordinates["query"]
    query = int(max({*every} - {*some}))
    only = {"etc", "dilution"}
    out = ",".join(name for name, each in ANALYSES.items() if each.measures and name not in only)

    found = verdicts(engine, "demo-attn-2l", 64, 5, query=query, leave_out=out)

    assert "spreads over all there is" in " ".join(found.texts["verdict"].ravel())


def test_nothing_left(engine):
    with refused("No question is left"):
        verdicts(engine, "demo-attn-2l", 32, 3, leave_out=",".join(ANALYSES))
