"""The stages of a pass: the statistics of a stage are those of a shorter run."""

from contextlib import suppress

import jaxtyping
import numpy as np
import pytest

from poskernel_core.analyses import ANALYSES, Analysis
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.engine import execute
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import missing_passes, plan_of
from poskernel_core.engine.provenance import stored
from poskernel_core.passes import forming
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.worker_context import ModelCache, WorkerContext
from poskernel_core.statistics import STATISTICS
from poskernel_core.storage.statistics import StoredStatistics, missing_statistics
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.stages import gather, held, layers_of, nothing_left, run_over, same_bits

pytestmark = pytest.mark.usefixtures("unchecked")

CONTEXT, POSITIONS, BATCH = 19, (3, 11, 18), 3
SHORT, QUERY = 11, 9
IDS = builders.random_ids(130, CONTEXT, seed=5).numpy()
FEW = ("keys", "patterns", "queries")
CASES = {"gpt2": (20, None, [4, 8, 10]), "mistral": (130, 64, [4, 8, 10, 20, 60, 120])}
"""Of each model, which have learned positions, and shared keys with a sliding window: the windows,
how many of the first form attention, and the stages."""


@pytest.fixture(scope="module")
def models():
    return ModelCache(most=len(CASES))


@pytest.fixture
def shared(tmp_path, models):
    return WorkerContext(Store(tmp_path / "store"), models)


@pytest.fixture(scope="module", params=CASES)
def formed(request, model_dirs, models, tmp_path_factory):
    """A run with all statistics that a model has, and what was seen of every stage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        return Formed(request.param, model_dirs, models, tmp_path_factory.mktemp(request.param))


class Formed:
    """A finished pass.

    `kept` holds the stages as they were written, `views` what they had at each recorded position.
    """

    def __init__(self, name, model_dirs, models, folder):
        windows, bound, self.stages = CASES[name]
        every = {*STATISTICS} - ({"rotary"} if name == "gpt2" else {"positions"})
        self.model, self.windows, self.bound = model_dirs[name], windows, bound
        self.run = run_over(
            folder, self.model, IDS, windows, gather=tuple(sorted(every)), positions=POSITIONS,
            queries_per_position=30, pattern_windows=bound,
        )  # fmt: skip
        self.kept, self.views = Store(folder / "stages"), {}
        self.context = WorkerContext(Store(folder / "whole"), models)
        gather(self.context, self.run, BATCH, self.look)

    def look(self, stage):
        assert (self.windows, stage.run.windows) == (stage.of, stage.windows)
        stage.write(self.kept, stage.run)
        at = {query: stage.at(query) for query in POSITIONS}
        self.views[stage.windows] = {
            query: (view.header, layers_of(view)) for query, view in at.items()
        }
        return False

    def first(self, windows):
        return self.run.model_copy(update={"windows": windows})


def test_a_stage_is_a_run_of_its_windows(formed, shared):
    """All statistics have the same bits, and the headers say the same; so has the whole."""
    assert formed.stages == [*formed.views]
    for windows in formed.stages[1::4]:
        run = formed.first(windows)
        header, layers = held(formed.kept, run)
        gather(shared, run, BATCH)
        expected = held(shared.store, run)

        same_bits(expected[1], layers)
        own = {"seconds"}
        assert expected[0].model_dump(exclude=own) == header.model_dump(exclude=own)
        groups, sampled = min(10, windows), max(10, 30 - 30 % 10)
        assert (windows, groups) == (header.windows, header.groups)
        assert min(windows, sampled) == header.samples
    gather(shared, formed.run, BATCH)
    same_bits(held(shared.store, formed.run)[1], held(formed.context.store, formed.run)[1])
    nothing_left(formed.context.store, formed.run)


def test_arrays_are_found_by_name(shared, model_dirs, tmp_path, monkeypatch):
    """Each by itself as all together; no statistic is made that is not asked for."""
    asked = ("keys", "positions", "queries", "rotary")
    run, made, seen = run_over(tmp_path, model_dirs["llama"], IDS, 20, gather=asked), [], []

    def counted(name, blocks, plan):
        made.append(name)
        return finish(name, blocks, plan)

    finish = forming.finish
    monkeypatch.setattr(forming, "finish", counted)

    def look(stage):
        for layer, whole in enumerate(layers_of(stage.at(11))):
            assert (layer == 0) == ("position_rows" in whole)
            for name, array in whole.items():
                same_bits([{name: array}], [{name: stage.at(11).layer(layer)[name]}])
            assert len(whole) == len(stage.at(11).layer(layer))
            for name in ("mean_keys.no", "no such array", "mean_rows"):
                assert stage.at(11).layer(layer).get(name) is None
        assert "position_rows" not in stage.at(11).layer(1)
        made.clear()
        view = stage.at(11)
        for name in ("mean_keys", "mean_keys.groups", "mean_keys.no"):
            assert (name != "mean_keys.no") == (name in view.layer(2))
        assert ["keys"] == made
        seen.append(stage.windows)
        return True

    gather(shared, run, BATCH, look)
    assert [4] == seen


def requests():
    """Every analysis with its parameters, and those whose parameters decide what forms."""
    given = {"query": QUERY, "head": "L1H2", "text": "She sells."}
    for one in ANALYSES.values():
        if isinstance(one, Analysis):
            yield one, {name: given[name] for name in given if name in one.params.model_fields}
    yield ANALYSES["how-many-texts"], {"query": QUERY, "measure": "equivariance error"}


OF_THE_MOMENT = {"date", "pass_seconds", "analysis_seconds"}
"""What provenance says of how an answer was come by."""


def test_every_stage_of_every_question(shared, models, model_dirs, tmp_path):
    """What forms is what the run of those windows gives, with all its positions: bit by bit.

    A stage may lack a value that compares positions, and nothing else.
    """
    run = run_over(tmp_path, model_dirs["llama"], IDS[:, :SHORT], 20)
    plans = [plan_of(question, run, question.params(**own)) for question, own in requests()]
    kept, whole = Store(tmp_path / "stages"), WorkerContext(Store(tmp_path / "whole"), models)
    formed = []

    def look(stage):
        if stage.windows < 10:
            return False
        gather(whole, stage.run, BATCH)
        for plan in plans:
            with suppress(BadRequest):  # too few groups of texts
                if execute.form(kept, plan, stage, QUERY):
                    formed.append(plan)
        return True

    for each in missing_passes(kept, [run for plan in plans for run in plan.needs.values()]):
        with suppress(BadRequest):  # repeated tokens, which need learned positions
            gather(shared, each, BATCH, look)
    assert FORM <= {plan.question.name for plan in formed}
    for plan in formed:
        first = plan.run.model_copy(update={"windows": 10})
        shorter = plan_of(plan.question, first, plan.params)
        execute.compute(whole.store, shorter, lambda *_: None)
        expected = stored(whole.store, shorter.key)
        found = stored(kept, plan.of_stage(10, QUERY).key)
        lacking = expected.values.keys() - found.values.keys()
        assert lacking <= {v.name for v in plan.question.values if v.over_positions}
        if "query" in found.coordinates:
            expected, found = (each.select(query=QUERY) for each in (expected, found))
        same(expected.only(*found.values), found, plan.request.params)


FORM = {"etc", "kernel", "entropy", "sinks", "foreseen-attention", "how-many-texts"}


def same(expected, found, case):
    """Two results are the same, but for when and how fast they were computed."""
    for part in ("values", "errors", "biases", "coordinates", "texts"):
        left, right = getattr(expected, part), getattr(found, part)
        assert left.keys() == right.keys(), case
        for value, array in left.items():
            np.testing.assert_array_equal(array, right[value], err_msg=f"{case}: {value}")
    one, other = (
        {name: each for name, each in result.provenance.items() if name not in OF_THE_MOMENT}
        for result in (expected, found)
    )
    assert one == other, case


@pytest.mark.parametrize("end", [8, 20])
def test_a_pass_ends_at_a_stage(shared, models, model_dirs, tmp_path, monkeypatch, end):
    """What it has read then is the run, under the rule that ended it; nothing else is left."""
    fields = {"gather": FEW, "positions": POSITIONS, "until": "kinds"}
    run, reads, seen = run_over(tmp_path, model_dirs["gpt2"], IDS, 50, **fields), [], []
    read = Pass._read

    def listen(work, tokens, rows):
        reads.extend(rows)
        read(work, tokens, rows)

    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(Pass, "_read", listen)

    def look(stage):
        assert run.model_copy(update={"windows": stage.windows, "until": None}) == stage.run
        seen.append(stage.windows)
        return stage.windows == end

    gather(shared, run, BATCH, look)
    assert [*range(end)] == sorted(reads)
    assert [each for each in (4, 8, 10, 20) if each <= end] == seen
    assert () == missing_statistics(shared.store, run)
    nothing_left(shared.store, run)

    shorter = run.model_copy(update={"windows": end, "until": None})
    assert StoredStatistics.open(shared.store, shorter) is None
    other = WorkerContext(Store(tmp_path / "shorter"), models)
    gather(other, shorter, BATCH)
    expected, found = held(other.store, shorter), held(shared.store, run)
    same_bits(expected[1], found[1])
    assert expected[0] == found[0].model_copy(update={"seconds": expected[0].seconds})


def test_a_stage_after_a_break(shared, model_dirs, tmp_path):
    """Its header says where the pass was broken off."""
    run, seen = run_over(tmp_path, model_dirs["gpt2"], IDS, 70, gather=("keys",)), {}

    def look(stage):
        seen[stage.windows] = stage.header.resumed_at_window
        return stage.windows == 20

    gather(shared, run, BATCH, look, until=9)
    gather(shared, run, BATCH, look)
    assert {4: 0, 8: 0, 10: 9, 20: 9} == seen
    header = held(shared.store, run)[0]
    assert (20, 9) == (header.windows, header.resumed_at_window)


COVERED = {
    "the same": ({}, True),
    "of a longer run": ({"windows": 500}, True),
    "of as many windows": ({"windows": 20}, True),
    "of fewer windows": ({"windows": 19}, False),
    "under a rule": ({"until": "etc"}, True),
    "fewer statistics": ({"gather": ("keys",)}, True),
    "other statistics": ({"gather": ("keys", "sinks")}, False),
    "attention on fewer windows": ({"pattern_windows": 64}, False),
    "no attention on fewer windows": ({"pattern_windows": 64, "gather": ("keys",)}, True),
    "other positions": ({"positions": (3, 11)}, False),
    "other texts": ({"seed": 1}, False),
    "other precision": ({"dtype": "bfloat16"}, False),
}


def test_what_a_stage_covers(shared, model_dirs, tmp_path):
    fields = {"gather": FEW, "positions": POSITIONS}
    run, covered = run_over(tmp_path, model_dirs["gpt2"], IDS, 40, **fields), {}

    def look(stage):
        if stage.windows == 20:
            for case, (change, _) in COVERED.items():
                covered[case] = stage.covers(run.model_copy(update=change))
        return stage.windows == 20

    gather(shared, run, BATCH, look)
    assert {case: expected for case, (_, expected) in COVERED.items()} == covered


TEXTS = {
    "documents": ({"documents": 13, "words": 101}, 60, "documents", [4, 8, 10, 20]),
    "many documents": ({"documents": 90, "words": 61}, 520, "documents", [4, 8, 10, 20]),
    "a text": ({"documents": 3, "words": 301}, 60, "stretches", [4, 8, 10, 20]),
    "a long text": ({"documents": 3, "words": 1501}, 520, "stretches", []),
}


@pytest.mark.parametrize("case", TEXTS)
def test_stages_of_texts(shared, models, model_dirs, tmp_path, case):
    """The windows of a stage are those of the shorter run; where they are not, there is none.

    A long text is cut into stretches of all windows that are asked for, so those of a run of 520
    are not those of a shorter one.
    """
    made, windows, dealt, stages = TEXTS[case]
    _, text = builders.mini_corpus(tmp_path / "texts", **made)
    corpus, gpt2 = CorpusSpec(name=str(text)), str(model_dirs["gpt2"])
    run = describe_run(gpt2, corpus=corpus, context=7, windows=windows)
    run, found = run.model_copy(update={"gather": ("keys",)}), {}

    def look(stage):
        found[stage.windows] = layers_of(stage.at(stage.sizes.positions[0]))
        assert stage.sizes.dealt == dealt
        return stage.windows == 20

    gather(shared, run, BATCH if stages else 52, look)
    assert stages == [*found]
    header = held(shared.store, run)[0]
    assert (20 if stages else windows, dealt) == (header.windows, header.dealt)
    other = WorkerContext(Store(tmp_path / "shorter"), models)
    for count, layers in found.items():
        shorter = run.model_copy(update={"windows": count})
        gather(other, shorter, BATCH)
        same_bits(held(other.store, shorter)[1], layers)
