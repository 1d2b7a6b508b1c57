"""The bag of two heads with random weights that most questions about the bag are asked of."""

import pytest

from tests.support.builders.bag import studied
from tests.support.builders.contextual import some_windows

QUERY, CONTEXTS, HEADS = 11, 5, (1, 3)


@pytest.fixture(scope="session")
def random_bag(model_dirs):
    """What experiments work on, and the same bag by plain loops."""
    return studied(model_dirs["gpt2"], some_windows(7, 19), CONTEXTS, HEADS, QUERY)


@pytest.fixture(scope="session")
def bag_params():
    return {"query": QUERY, "first_windows": CONTEXTS, "heads": "L0H3 L0H1"}
