"""One number has one value: what several answers about all heads hold of the same kernels."""

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest

from poskernel_core.engine.provenance import from_entry
from poskernel_core.models.stored import RESULTS
from poskernel_core.storage.shipped import Shipped

QUESTIONS = ("etc", "kernel", "dilution")


@pytest.mark.parametrize("model", sorted(folder.name for folder in RESULTS.iterdir()))
def test_shipped_answers_agree(model):
    """Within half an error, as they are rounded; none beyond the range of any."""
    shipped, rows = Shipped([RESULTS / model]), defaultdict(list)
    for key, header in shipped.headers():
        if header.get("analysis") in QUESTIONS:
            result = from_entry(shipped.get(key))
            run = tuple(result.provenance[name] for name in ("model_fingerprint", "windows"))
            for query in result.coordinates.get("query", [result.params.get("query")]):
                at = result.select(query=int(query)) if "query" in result.coordinates else result
                for name in {*at.values} & {*at.plug_ins}:
                    if at.axes[name] == ("layer", "head"):
                        place = (*run, name, int(query), result.params["skip"])
                        rows[place].append((at.values[name], at.errors[name]))
    several = {place: each for place, each in rows.items() if len(each) > 1}
    assert {"etc"} <= {place[2] for place in several}
    for place, each in several.items():
        for (one, error), (other, _) in combinations(each, 2):
            apart = np.abs(one - other)
            assert not (apart > 0.5 * error + 1e-6 * np.abs(one)).any(), place
