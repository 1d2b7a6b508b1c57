"""On which prompts the helix is measured: one token repeated, or texts; and where it is refused."""

import numpy as np

from poskernel_core.analyses.helix import formulas
from poskernel_core.analyses.helix.formulas import repeated_run
from poskernel_core.analyses.helix.spec import Helix, HelixParams
from poskernel_core.common.specs import CorpusSpec, Execution, RunSpec
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.prepare import prepare
from tests.analyses.helix.test_helix import extended, gather
from tests.support import builders
from tests.support import oracles_positions as op
from tests.support.raw import analyse
from tests.support.refusals import refused

POS, TOKENS, CONTEXT = 11, 5, 31


def test_repeated_run():
    """It depends on the model and the context alone; texts keep the run's corpus and windows."""
    model, repeated = {"model": {"name": "m"}, "context": POS}, formulas.repeated_run
    one = RunSpec(corpus={"name": "a"}, windows=3, positions=(3,), destination=" the", **model)
    other = RunSpec(corpus={"name": "b"}, windows=7, positions=(7,), start_token=False, **model)

    assert repeated(one, 5) == repeated(other, 5) != repeated(one, 6)
    assert Helix().canonical(one, HelixParams(tokens=5)) == repeated(other, 5)
    assert (5, False) == (repeated(one, 5).windows, repeated(one, 5).start_token)
    texts = [Helix().canonical(run, HelixParams(prompts="texts")) for run in (one, other)]
    assert [("a", 3), ("b", 7)] == [(run.corpus.name, run.windows) for run in texts]


def test_over_texts(model_dirs):
    windows = builders.random_ids(TOKENS, CONTEXT, seed=5).numpy()
    windows[:, 0] = builders.START

    result = analyse("helix", gather(model_dirs["llama"], windows, True), prompts="texts")

    assert list(range(1, CONTEXT)) == result.coordinates["pos"].tolist()
    assert [1, 11, 21] == result.coordinates["group_of_10"].tolist()
    for layer, X in enumerate(extended(model_dirs["llama"], windows, 1)):
        shares = result.values["explained_variance"][layer][:3]
        np.testing.assert_allclose(shares, op.pca(X, 3)[0], atol=1e-4)


def test_no_helix_of_repeated_tokens_for_rotary_positions(model_dirs):
    located = catalog.locate(str(model_dirs["llama"]))
    run = repeated_run(describe_run(str(model_dirs["llama"]), context=CONTEXT), TOKENS)
    with refused("rotary.*choose a model with learned positions"):
        prepare(run, Execution(device="cpu"), located, load_tokenizer(located))


def test_windows_of_the_settled_run(model_dirs):
    located = catalog.locate(str(model_dirs["gpt2"]))
    run = describe_run(str(model_dirs["gpt2"]), corpus=CorpusSpec(name="bible"), context=CONTEXT)

    windows, plan = prepare(
        repeated_run(run, TOKENS), Execution(), located, load_tokenizer(located)
    )

    assert (TOKENS, CONTEXT) == windows.shape
    assert (windows == windows[:, :1]).all()
    assert TOKENS == len(set(windows[:, 0].tolist()) - {builders.START})
    assert not plan.start_token
