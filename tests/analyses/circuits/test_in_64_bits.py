"""Effects of heads over a set, where ours and plain transformers have 64 bits."""

import numpy as np
import pytest

from poskernel_core.analyses.patching.spec import PatchHeads
from tests.analyses.patching.test_sets import by_hooks, ratio
from tests.support.builders import hf_eager_model
from tests.support.circuits import random_rows, subject_of, table, written
from tests.support.raw import of_all_texts


@pytest.mark.parametrize(
    ("kind", "way"), [("gpt2", "clean-into-changed"), ("llama", "changed-into-clean")]
)
def test_a_set(model_dirs, wide, kind, way):
    """The exact effects of all heads, more than twelve."""
    rows, plain = random_rows(model_dirs[kind], count=5), hf_eager_model(model_dirs[kind])
    asked = PatchHeads.params(pairs=table(rows), direction=way, exact="all")
    subject = subject_of(wide(model_dirs[kind], plain), [[0]], batch=4)
    found = of_all_texts(PatchHeads().perform(subject, {}, asked, lambda done, total: None))
    names = "clean", "changed", "answer", "other_answer"
    texts = [dict(zip(names, (*map(written, row[:2]), *row[2:4]), strict=True)) for row in rows]
    effect = found.plug_ins["effect"]
    moved, ends = by_hooks(plain, kind, texts, way, effect.shape[1])
    of = (ends[:, 0] - ends[:, 1]) * (1 if kind == "gpt2" else -1)
    assert effect.size > 12
    np.testing.assert_allclose(effect, ratio(moved, of), rtol=0, atol=1e-8)
