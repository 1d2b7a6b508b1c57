"""Verdicts on heads: what is claimed, what is said with «about», and what is not said at all."""

import math
from dataclasses import replace

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.head_measures.claims import Head, verdict
from poskernel_core.analyses.head_measures.figures import measure_texts, measures_table, rank_texts
from poskernel_core.common.result import Result, texts_array
from tests.support import builders
from tests.support.refusals import refused

NAN = math.nan
PARAMS = {
    "etc": {"local_tokens": 10, "local_share": 0.5, "uniform_share": 0.5},
    "contextual-heads": {"duplicates": 0.3, "local": 0.5, "broad": 30.0, "steady": 0.25},
    "sinks": {"threshold": 0.3},
}
GROUPS = ("duplicate token", "detokenization", "contextual", "other")
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


def said(*answers):
    return verdict(Head({each.analysis: each for each in answers}, 0, 0))


def kernel(mass=(0.1, 0.01), etc=(40.0, 1.0), fidelity=(0.1, 0.01)):
    """An answer about the kernel, over 100 visible keys."""
    return answer("etc", local_mass=mass, etc=etc, visible_keys=100.0, attention_distance=fidelity)


def contextual(group="other", near=(0.0, 0.01), far=(0.0, 0.01), etc=80.0, spread=(0.1, 0.01)):
    """An answer about denominators and duplicates."""
    return answer(
        "contextual-heads",
        {"group": GROUPS},
        group=GROUPS.index(group), near_duplicates=near, far_duplicates=far, etc=etc,
        denominator_cv=spread,
    )  # fmt: skip


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
    "local": (kernel(mass=(0.9, 0.01)), "Local: by position 0.90 of"),
    "about local": (kernel(mass=(0.51, 0.01)), "About local: by position 0.51 of"),
    "slow decay": (kernel(), "Slow decay: by position it spreads over 40 of 100 tokens."),
    "uniform": (kernel(etc=(60.0, 1.0)), "Uniform: by position it spreads over 60"),
    "about uniform": (kernel(etc=(51.0, 1.0)), "About uniform: by position"),
    "no key": (kernel((NAN, NAN), (NAN, NAN), (NAN, NAN)), ""),
    "far from its kernel": (kernel(fidelity=(0.7, 0.01)), "(distance 0.70)."),
    "previous": (look_back(1, (0.87, 0.01)), "one token back by position (P(1) 0.87)."),
    "aggregating": (look_back(1, (0.87, 0.01), "aggregator"), "at what earlier heads wrote there"),
    "three back": (look_back(3, (0.5, 0.01)), "Looks 3 tokens back by position (P(3) 0.50"),
    "itself": (look_back(0, (0.5, 0.01)), "Looks at the current token (P(0) 0.50)."),
    "about previous": (look_back(1, (0.3, 0.01)), "About looks one token back"),
    "hardly previous": (look_back(1, (0.2, 0.01)), ""),
    "induction": (induction(0.9), "An induction head (0.90)."),
    "no induction": (induction(0.1), "No induction."),
    "about induction": (induction(0.31), "About an induction head (0.31)."),
    "sink": (sinks(0.6, 0.0), "A sink on the first key (0.60)."),
    "learned sink": (sinks(0.1, 0.5), "A learned sink (0.50); no sink."),
    "sink of the first": (
        anatomy((0.6, 0.01), (0.02, 0.01), (0.11, 0.01)),
        "Its sink follows what stands first (0.60).",
    ),
    "sink of two": (
        anatomy((0.3, 0.01), (NAN, NAN), (0.4, 0.01)),
        "Its sink follows what stands first (0.30) and the start token (0.40).",
    ),
    "sink of position": (anatomy((0.0, 0.01), (0.2, 0.01), (-0.4, 0.01)), "position 0 (0.20)."),
    "no sink to explain": (anatomy((NAN, NAN), (NAN, NAN), (NAN, NAN)), ""),
    "contextual": (contextual(), "0.10 of its mean"),
    "about contextual": (contextual(spread=(0.24, 0.01)), "About contextual"),
    "unsteady": (contextual(spread=(0.4, 0.01)), "Not drawn to duplicates and not contextual."),
    "narrow": (contextual(etc=20.0), "Not drawn to duplicates and not contextual."),
    "duplicates": (
        contextual("duplicate token", near=(0.6, 0.01)),
        "duplicates of the current token (near ones 0.60); not contextual.",
    ),
    "foreseen, better": (
        foreseen(0.68, 0.12),
        "Its kernel foresees 0.68 of its attention with 32 of 401 keys, more than the first 4 and "
        "the last 28 do (0.56).",
    ),
    "foreseen, worse": (foreseen(0.68, -0.12), "keys, less than the first 4 and the last 28 do (0"),
    "foreseen as well": (foreseen(0.68, 0.01), "of its attention with 32 of 401 keys."),
    "foreseen with the same keys": (foreseen(0.68, 0.0), "of its attention with 32 of 401 keys."),
    "hardly foreseen": (foreseen(0.51, 0.12), ""),
    "foreseen with half of the keys": (foreseen(0.68, 0.12, 63.0), ""),
    "not known whether foreseen": (foreseen(NAN, NAN), ""),
    "positional": (shares(0.9, 0.1), "Position decides its scores (share 0.90)."),
    "reach": (dilution(0.1, 0.0), "Keeps its reach as the context grows (slope 0.10)."),
    "spread": (dilution(0.9, 1.0), "Spreads over all there is as the context grows (slope 0.90)."),
    "bent": (dilution(0.9, 0.1), ""),
    "open": (dilution(0.1, 0.249), ""),
    "from an MLP": (
        sources((0.01, 0.01), (0.2, 0.01), (0.79, 0.02)),
        "Most of its positional score comes from MLP 0 (share 0.79).",
    ),
    "from W_pos": (sources((0.9, 0.01), (0.1, 0.01), (NAN, NAN)), "the positional embedding (sh"),
    "from two": (sources((0.9, 0.01), (0.8, 0.01), (-0.7, 0.01)), ""),
    "perhaps from two": (sources((0.9, 0.01), (0.48, 0.02), (-0.38, 0.01)), ""),
    "perhaps from one": (sources((0.51, 0.01), (0.48, 0.001), (0.01, 0.01)), ""),
    "shared": (shares(0.4, 0.51), "Position (0.40) and content (0.51) share"),
    "both": (both(0.6), "Which content scores high depends on where it stands (share 0.60)."),
    "about both": (both(0.51), ""),
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


def test_together():
    found = said(
        kernel(mass=(0.9, 0.01)), look_back(1, (0.87, 0.01)), shares(0.92, 0.05), induction(0.0)
    )
    parts = ["Local", "looks one token back", "position decides", "no induction."]
    assert parts == [
        part[: len(start)] for part, start in zip(found.split("; "), parts, strict=True)
    ]


@pytest.mark.parametrize(("first", "told"), [(0.6, True), (0.31, True), (0.1, False)])
def test_nothing_is_said_of_a_sink_that_is_none(first, told):
    """In the texts of its anatomy, a head may have a sink that it lacks in those of the run."""
    found = said(sinks(first, 0.0), anatomy((0.6, 0.01), (0.0, 0.01), (0.0, 0.01)))
    assert told == ("its sink follows" in found)


def test_a_wavelength():
    for second, word in ((0.5, "of 23 tokens"), (0.99, "of about 23 tokens")):
        result = answer("rotary-spectrum", dominant_wavelength=23.0)
        result.values["swing"] = np.array([[[NAN, 1.0, second]]])
        result.errors["swing"] = np.array([[[NAN, 0.01, 0.01]]])
        assert f"Moved most by a wavelength {word}." == said(result)


@pytest.mark.parametrize(
    ("groups", "expected"), [(0, "An induction"), (10, "An induction"), (2, "About an induction")]
)
def test_few_groups_claim_little(groups, expected):
    """Five errors above the limit: enough of all samples (1.96) and ten groups, not of two."""
    found = induction(0.35)
    found.provenance.update(errors="documents", groups=groups)
    assert said(found).startswith(expected)


@pytest.mark.parametrize(("groups", "about"), [(0, ""), (10, "about ")])
def test_a_wavelength_of_few_groups(groups, about):
    """The two swings are 2.1 errors of their difference apart: 1.96 are fewer, 2.26 are more."""
    result = answer("rotary-spectrum", dominant_wavelength=23.0)
    result.values["swing"] = np.array([[[1.0, 1.0 - 2.1 * 0.05]]])
    result.errors["swing"] = np.array([[[0.03, 0.04]]])
    result.provenance.update(errors="documents", groups=groups)
    assert f"of {about}23 tokens." in said(result)


@pytest.mark.parametrize(("low", "high", "passes"), [(0.31, 0.4, "yes"), (0.2, 0.4, "about")])
def test_ends_of_an_interval_that_are_known(low, high, passes):
    result = induction(0.35)
    result.lows["induction"], result.highs["induction"] = np.array([[low]]), np.array([[high]])
    assert passes == Head({"it": result}, 0, 0).number("it", "induction").passes(0.3)


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
    assert "looks one token back" in sentences[0]
    assert not any("looks one token back" in each for each in sentences[1:])
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
