"""Targets that end a run early: which heads meet them, on which side of their limits."""

import math

import numpy as np
import pytest

from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams, stands
from poskernel_core.common.jackknife import interval
from poskernel_core.engine import targets
from poskernel_core.engine.targets import is_met, meets
from poskernel_core.passes.forming import Stage
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.made_findings import made
from tests.support.stages import gather, held, run_over

pytestmark = pytest.mark.usefixtures("unchecked")

NAN = math.nan
CONTEXT, POSITIONS = 37, (5, 11, 23, 36)
IDS = builders.random_ids(70, CONTEXT, seed=3).numpy()


def result_of(local, etc, groups=10):
    """A result whose heads see 40 keys, so that 20 effective tokens are the limit of a uniform one.

    `local`, `etc`: values and errors, of one head or an array of heads.
    """
    every = np.broadcast_arrays(*local, *etc, 40.0)
    arrays = [np.atleast_1d(each)[None, :, None] for each in every]
    names = ("local_mass", "etc", "visible_keys")
    return made(
        "etc",
        dict(zip(names, arrays[::2], strict=True)),
        dict(zip(names[:2], arrays[1:4:2], strict=True)),
        params=EtcParams().model_dump(),
        provenance={"errors": "documents", "groups": groups},
    )


NARROW, UNIFORM, UNKNOWN = (8.0, 1.0), (32.0, 1.0), (20.0, 1.0)
HEADS = {
    # share on the last tokens, effective tokens; whether the kind stands
    "local to the limit": ((0.75, 0.125), UNKNOWN, True),
    "local not quite": ((0.75, 0.126), NARROW, False),
    "not local, to the limit": ((0.25, 0.1251), NARROW, False),
    "not local and narrow": ((0.25, 0.124), NARROW, True),
    "not local and uniform": ((0.25, 0.124), UNIFORM, True),
    "not local, neither": ((0.25, 0.124), UNKNOWN, False),
    "uniform to the limit": ((0.1, 0.0), (30.0, 5.0), True),
    "uniform not quite": ((0.1, 0.0), (30.0, 5.1), False),
    "narrow to the limit": ((0.1, 0.0), (10.0, 5.0), False),
    "narrow": ((0.1, 0.0), (10.0, 4.9), True),
    "no visible keys": ((NAN, NAN), (NAN, NAN), False),
    "no error": ((0.9, NAN), NARROW, False),
    "exact": ((0.5, 0.0), UNKNOWN, True),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_kind_stands(case):
    """No interval, here of two errors, holds a limit that the kind goes by."""
    local, etc, expected = HEADS[case]
    assert [[[expected]]] == stands(result_of(local, etc), 2.0 / interval(10)).tolist()


@pytest.mark.parametrize(
    ("groups", "usual", "sure"), [(10, 2.262157, 3.689662), (8, 2.364624, 4.029337),
                                  (4, 3.182446, 7.453319), (2, 12.706205, 127.321336)]
)  # fmt: skip
def test_intervals(groups, usual, sure):
    """Student's t by table: kinds stand by intervals of 95 %, targets are met by 99.5 %.

    Half of the interval of a known effective token count is at most 5 %, as a factor.
    """
    assert usual == pytest.approx(interval(groups), rel=1e-6)
    assert sure == pytest.approx(interval(groups, 0.995), rel=1e-6)
    for width, verdict in ((usual, stands), (sure, lambda result: meets("kinds", result))):
        local = 0.5 + width * np.array([0.999, 1.001]), np.ones(2)
        found = verdict(result_of(local, NARROW, groups=groups))
        assert [[[False], [True]]] == found.tolist()

    error, etc = math.log(1.05) / sure, np.array([30.0, 30.0, 30.0, NAN])
    errors = etc * np.array([0.999 * error, 1.001 * error, NAN, NAN])
    found = meets("etc", result_of((0.5, 0.1), (etc, errors), groups=groups))
    assert [[[True], [False], [False], [True]]] == found.tolist()


def test_heads_of_which_nothing_is_known():
    """One that sees nothing is no obstacle; of one group no errors are known, and none is met."""
    local, etc = (np.array([NAN, 0.5]), 0.01), (np.array([NAN, 8.0]), 0.1)
    assert [[[True], [False]]] == meets("kinds", result_of(local, etc)).tolist()
    local = np.array([0.99, NAN]), 0.0
    for groups in (0, 1):
        alone = result_of(local, (local[0], 0.0), groups=groups)
        for until in ("kinds", "etc"):
            assert [[[False], [False]]] == meets(until, alone).tolist()


@pytest.fixture
def shared(tmp_path):
    """A worker's context with an empty store."""
    return WorkerContext(Store(tmp_path / "store"))


@pytest.mark.parametrize("until", ["kinds", "etc"])
def test_a_model_that_is_known_at_once(shared, tmp_path, until):
    """Its kernels do not depend on its texts: four windows are enough, and the run has no more.

    A pass without what a target needs reads all its windows.
    """
    known, seen = builders.look_back(tmp_path / "model", k=3), []

    def look(stage):
        seen.append(stage.windows)
        return is_met(until, stage)

    run = run_over(tmp_path, known, IDS, 20, positions=POSITIONS, until=until)
    gather(shared, run, 8, look)
    header = held(shared.store, run)[0]
    assert ([4], 4, 4) == (seen, header.windows, header.groups)
    few = run.model_copy(update={"gather": ("keys", "queries"), "until": None})
    gather(shared, few, 8, look)
    assert ([4, 4, 8, 10], 20) == (seen, held(shared.store, few)[0].windows)


@pytest.mark.parametrize(("most", "query"), [(35, 23), (4, 5)])
def test_where_it_is_looked_at(shared, model_dirs, tmp_path, monkeypatch, most, query):
    """At the last recorded position up to the default one, as in the answer of the shorter run.

    A bound of 570 % is met from the second stage on, or from the third.
    """
    monkeypatch.setattr(targets, "DEFAULT_QUERY", most)
    monkeypatch.setattr(targets, "KNOWN_TO", 5.7)
    run = run_over(tmp_path, model_dirs["gpt2"], IDS, 40, positions=POSITIONS)
    found, looked, at, place = {}, [], Stage.at, POSITIONS.index(query)
    monkeypatch.setattr(Stage, "at", lambda stage, n: looked.append(n) or at(stage, n))

    def look(stage):
        stage.write(shared.store, stage.run)
        found[stage.windows] = [is_met(until, stage) for until in ("kinds", "etc")]
        return False

    gather(shared, run, 8, look)
    assert [query] * 8 == looked
    assert {False, True} == {met[1] for met in found.values()}
    for windows, met in found.items():
        view = StoredStatistics.open(shared.store, run.model_copy(update={"windows": windows}))
        answer = EtcHeatMap().answer({"main": view}, EtcParams(), lambda done, total: None)
        heads = [meets(until, answer)[:, :, place] for until in ("kinds", "etc")]
        assert [each.all() for each in heads] == met
