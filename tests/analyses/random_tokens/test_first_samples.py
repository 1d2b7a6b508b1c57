"""How many random sequences experiments begin with: fewer for large models."""

from dataclasses import replace

import pytest

from poskernel_core.analyses.random_tokens.params import (
    CLEAR_SAMPLES,
    SAMPLE_COUNTS,
    SAMPLES,
    first_samples,
)
from poskernel_core.models import catalog, curated

SMALL = catalog.locate("demo-gpt2").geometry


@pytest.mark.parametrize(
    ("layers", "width", "expected"),
    [
        (4, 192, 2000),
        (10, 316, 2000),  # 10 × 316² = 998,560
        (10, 317, 1000),  # 10 × 317² = 1,004,890
        (30, 576, 200),  # SmolLM2 135M
        (32, 4096, 100),  # Llama 8B: never fewer than the fewest offered
    ],
)
def test_large_models_begin_with_fewer(layers, width, expected):
    """Two thousand millions over layers times squared width, down to a number that is offered."""
    geometry = replace(SMALL, n_layers=layers, d_model=width)
    assert expected == first_samples(CLEAR_SAMPLES, geometry)
    assert min(SAMPLES, expected) == first_samples(SAMPLES, geometry)
    assert {CLEAR_SAMPLES, SAMPLES} <= set(SAMPLE_COUNTS)


@pytest.mark.parametrize("model", curated.BUNDLED_MODELS)
def test_bundled_models_begin_with_all(model):
    assert CLEAR_SAMPLES == first_samples(CLEAR_SAMPLES, catalog.locate(model).geometry)
