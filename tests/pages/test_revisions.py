"""Which revisions of a hub model a reader may name: what is downloaded stays bounded."""

import pytest

from pages.shared.jobs import results
from poskernel_core.common.errors import BadRequest
from poskernel_core.models.checkpoints import Checkpoint
from poskernel_core.models.training import TrainingRun


@pytest.fixture
def trained(monkeypatch):
    run = TrainingRun("owner/model", (Checkpoint("step1", 1), Checkpoint("step2", 2)))
    monkeypatch.setattr(results, "training", {"owner/model": run, "owner/other": None}.get)


@pytest.mark.parametrize("revision", [None, "main", "step2"])
def test_listed_revisions(trained, revision):
    results.check_revision("owner/model", revision)


@pytest.mark.parametrize(
    ("model", "revision", "advice"),
    [
        ("owner/model", "v2", "a checkpoint of its training, or none"),
        ("owner/model", "0123abc", "a checkpoint of its training, or none"),
        ("owner/other", "step1", "choose none"),
    ],
)
def test_other_revisions(trained, monkeypatch, model, revision, advice):
    """Refused, unless the host lets readers name what they like."""
    with pytest.raises(BadRequest, match=advice):
        results.check_revision(model, revision)
    monkeypatch.setenv("POSKERNEL_ALLOW_ANY_MODEL", "1")
    results.check_revision(model, revision)
