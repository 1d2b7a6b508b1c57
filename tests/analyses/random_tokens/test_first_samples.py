"""How many random sequences experiments begin with: fewer for large models."""

from dataclasses import replace

import pytest

from poskernel_core.analyses.random_tokens import params
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
    assert expected == params.first_samples(params.CLEAR_SAMPLES, geometry)
    assert min(params.SAMPLES, expected) == params.first_samples(params.SAMPLES, geometry)
    assert {params.CLEAR_SAMPLES, params.SAMPLES} <= set(params.SAMPLE_COUNTS)


@pytest.mark.parametrize("model", curated.BUNDLED_MODELS)
def test_bundled_models_begin_with_all(model):
    assert params.CLEAR_SAMPLES == params.first_samples(
        params.CLEAR_SAMPLES, catalog.locate(model).geometry
    )
