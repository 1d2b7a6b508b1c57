"""How many heads are enough: by plain transformers and hooks, and where it is known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.circuits.formulas import enough, numbers_of_heads
from poskernel_core.analyses.circuits.spec import (
    BY_KERNELS,
    KEPT,
    OWN_ORDER,
    REMOVED,
    Faithfulness,
)
from poskernel_core.common.errors import Cancelled
from poskernel_core.common.heads import parse_cell
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support import oracles_kernel_only as kernels
from tests.support.builders import induction
from tests.support.builders.contextual import some_windows
from tests.support.circuits import (
    Exchanged,
    goes_on,
    induction_rows,
    random_rows,
    subject_of,
    table,
)
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused

SKIP, LENGTH = 3, 11
SCALE = {"gpt2": [7**-0.5] * 3, "llama": [10**-0.5] * 3}


def perform(path, rows, windows=None, progress=None, more=None, model=None, **params):
    windows = some_windows(7, LENGTH, True) if windows is None else windows
    asked = Faithfulness.params(pairs=table(rows), skip=SKIP, **params)
    subject = subject_of(model or loaded(path), windows, **(more or {}))
    return Faithfulness().perform(subject, {}, asked, progress or (lambda done, total: None))


def test_numbers_of_heads_by_hand():
    assert [*range(17), 24, 32, 48, 64, 96, 100] == numbers_of_heads(100).tolist()
    assert [0, 1, 2, 3] == numbers_of_heads(3).tolist()
    assert [*range(17), 24, 32] == numbers_of_heads(32).tolist()


def test_enough_by_hand():
    """At 2 it is enough, but not at 3; from 5 on it is, and stays so."""
    counts = np.array([0, 2, 3, 5, 7])
    assert 5 == enough(counts, np.array([0, 0.9, 0.79, 0.8, 1.2]))
    assert 0 == enough(counts, np.array([0.8, 0.9, 0.9, 0.8, 1.2]))
    assert np.isnan(enough(counts, np.array([0, 1, 1, 1, 0.7])))
    assert np.isnan(enough(counts, np.full(5, np.nan)))


@given(st.integers(1, 3000))
def test_numbers_rise_to_all_heads(total):
    counts = numbers_of_heads(total)
    assert (0, total) == (counts[0], counts[-1])
    assert (np.diff(counts) > 0).all()


@pytest.mark.parametrize(("name", "outside"), [
    ("gpt2", "changed"), ("llama", "changed"), ("gpt2", "kernel"), ("llama", "mean"),
])  # fmt: skip
def test_against_plain_transformers(model_dirs, wide, name, outside):
    """Rankings of halves, what is recovered at six sizes, errors and what remains of k80."""
    path, windows = model_dirs[name], some_windows(7, LENGTH, True)
    rows, plain = random_rows(path), Exchanged(path)
    patterns = kernels.rows(path, windows, SKIP, SCALE[name])["kernel"]
    model = wide(path, plain.model)
    asked = {"outside": outside, "order": "L1H0, L2H1", "model": model}
    found = of_all_texts(perform(path, rows, windows, more={"batch": 5}, **asked))
    own = found.words("curve").index(OWN_ORDER)
    layers, heads = len(patterns), plain.count
    every = [*np.ndindex(layers, heads)]

    group = np.arange(13) % 11 % 10  # eleven templates
    carried = np.array([plain.carried(*row[:2], row[2:4]) for row in rows])
    rankings = []
    for side in (0, 1):
        size = np.abs(carried[group % 2 != side].sum(0))
        rankings.append(sorted(every, key=lambda cell, size=size: -size[cell]))
        assert rankings[side] == [parse_cell(each, layers, heads)
                                  for each in found.texts["ranking"][side]]  # fmt: skip
    means = {}
    for row in rows:
        alike = [other for other in rows if (len(other[0]), other[4]) == (len(row[0]), row[4])]
        outputs = [plain.outputs(other[1]) for other in alike]
        means[str(row)] = {cell: sum(each[cell] for each in outputs) / len(alike) for cell in every}

    def fixed(row, cells, by_kernel=()):
        """What takes the place of these heads, on a prompt and the token behind it."""
        size = len(row[0]) + 2
        kernel = {(at, head): patterns[at][head][:size, :size] for at, head in every}
        outputs = {"changed": plain.outputs(row[1]), "kernel": kernel, "mean": means[str(row)]}
        given = {cell: outputs[outside][cell] for cell in cells}
        given |= {cell: kernel[cell] for cell in by_kernel}
        return {cell: np.asarray(each) for cell, each in given.items()}

    def margins(curve, count):
        rows_of = []
        for row, side in zip(rows, group % 2, strict=True):
            order = rankings[side]
            if curve == OWN_ORDER:
                order = [*dict.fromkeys([(1, 0), (2, 1), *order])]
            first, rest = order[:count], order[count:]
            swapped = first if curve == REMOVED else rest
            given = fixed(row, swapped, first if curve == BY_KERNELS else ())
            with torch.no_grad():
                rows_of.append(float(plain.margin(row[0], row[2:4], given)))
        return np.array(rows_of)

    none, whole = margins(KEPT, 0), margins(KEPT, len(every))
    counts = found.coordinates["first"].tolist()
    difference = (whole - none).mean()
    exact = 1e-4 if outside == "kernel" else 1e-8  # kernels have 32 bits here
    assert difference == pytest.approx(float(found.values["difference"]), abs=exact)
    for count in (1, 3, 7, 14):
        at = counts.index(count)
        for place, curve in enumerate(found.words("curve")[:-1]):
            part = margins(curve, count) - none
            expected = part.sum() / (whole - none).sum()
            got = found.values["recovered"][place, at]
            near = 1e-4 if curve == BY_KERNELS else exact
            assert expected == pytest.approx(got, abs=near), (curve, count)
            if place == own:

                def ratio(kept, part=part):
                    some = np.isin(group, kept)
                    return part[some].sum() / (whole - none)[some].sum()

                error = oracles.jackknife(10, ratio)
                assert error == pytest.approx(found.errors["recovered"][place, at], abs=near)
    assert (0, 1) == pytest.approx(
        (found.values["recovered"][0, 0], found.values["recovered"][0, -1])
    )
    assert (outside == "kernel") == np.isnan(found.values["content"]).all()


def test_an_induction_circuit(tmp_path):
    """These two heads are enough, and neither alone; by position alone, B and D look alike."""
    path = induction(tmp_path / "induction", height=12.0, gain=4.0)
    found = perform(path, induction_rows(), some_windows(9, 11, True))
    kept, kernel, removed, _random = found.values["recovered"]
    assert {"L0H0", "L1H0"} == {*found.texts["ranking"][0][:2]} == {*found.texts["ranking"][1][:2]}
    np.testing.assert_allclose(kept[2:], 1, atol=1e-3)
    assert abs(kept[1]) < 0.05
    np.testing.assert_allclose(removed[2:], 0, atol=1e-3)
    np.testing.assert_allclose(kernel[1:], 0.5, atol=0.1)
    assert (2, 2, 2) == found.estimate_of("k80", 0)


BAD = {
    "no set": ({"pairs": ""}, "a set of pairs of prompts, got none"),
    "no head": ({"order": "L9H0"}, "L9H0"),
    "long": ({"windows": 6}, "prompts of 6 tokens or fewer.*got 8"),
    "one pair": ({"rows": induction_rows()[:1]}, "of two groups or more.*got [01] such of 1 pair"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(model_dirs, case):
    given, words = BAD[case]
    path, length = model_dirs["gpt2"], given.get("windows", LENGTH)
    with refused(words):
        if "pairs" in given:
            run = describe_run("demo-gpt2", context=64)
            Faithfulness().with_params(run, Faithfulness.params())
        rows = given.get("rows", random_rows(path))
        perform(path, rows, some_windows(7, length, True), order=given.get("order", ""))


def test_pairs_that_do_not_show_the_behaviour_are_left_out(tmp_path):
    """Two of ten are the other way round."""
    path = induction(tmp_path / "induction", height=12.0, gain=4.0)
    rows = induction_rows(10)
    turned = [(changed, clean, *more) for clean, changed, *more in rows[:2]]
    found, few = (perform(path, some) for some in ([*turned, *rows[2:]], rows[2:]))
    assert (8, 2) == (found.values["pairs"], found.values["left_out"])
    np.testing.assert_allclose(found.values["recovered"][0], few.values["recovered"][0], atol=1e-6)


def test_shares_of_an_unclear_difference_are_blank(model_dirs):
    """Where the interval of the denominator reaches 0.5 nats, no share is given."""
    path = model_dirs["gpt2"]
    assert np.isfinite(perform(path, random_rows(path)).values["recovered"]).all()
    unclear = perform(path, random_rows(path, nats=0.3))
    assert 13 == unclear.values["pairs"]
    assert not unclear.lows["difference"] > 0.5
    assert np.isnan(unclear.values["recovered"]).all()
    assert np.isnan(unclear.values["k80"]).all()
    assert np.isfinite(unclear.values["difference"])


def test_it_forms(model_dirs):
    """Answers are those of the pairs read so far: first of one half, then of both."""
    path, seen = model_dirs["gpt2"], []
    rows = random_rows(path, lengths=(7,))
    group = np.arange(13) % 11 % 10
    read = [*np.flatnonzero(group % 2 == 0), *np.flatnonzero(group % 2)]
    order = ", ".join(f"L{layer}H{head}" for layer, head in np.ndindex(3, 5))
    more = {"form": lambda done, part: seen.append((done, part)), "batch": 8}
    perform(path, rows, more=more, order=order)
    assert [3, 4, 6, 7, 8, 10, 11, 12] == [done for done, _ in seen]
    for count, part in seen[::3]:
        alone = perform(path, [rows[at] for at in read[:count]], order=order)
        own = part.words("curve").index(OWN_ORDER)
        ours, expected = (of_all_texts(each).values["recovered"][own] for each in (part, alone))
        np.testing.assert_allclose(ours, expected, atol=2e-5)
        assert count == part.values["pairs"]
        assert len({*group[read[:count]]}) == part.provenance["groups"]
        assert np.isfinite(part.errors["recovered"]).all()


@pytest.mark.parametrize("outside", ["changed", "mean"])
def test_it_goes_on(model_dirs, outside):
    path = model_dirs["gpt2"]
    rows = random_rows(path)
    goes_on(lambda more: perform(path, rows, more=more | {"batch": 4}, outside=outside))


def test_it_can_be_cancelled(model_dirs):
    def stop(done, total):
        if done > total / 2:
            raise Cancelled("Cancelled.")

    path = model_dirs["gpt2"]
    with pytest.raises(Cancelled):
        perform(path, random_rows(path), progress=stop)
