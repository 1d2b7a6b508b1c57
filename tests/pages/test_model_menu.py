"""The menu of models as a script: own models first, any name where the host allows it."""

from types import SimpleNamespace

import pytest
import streamlit as st

from pages.shared.selection import host
from poskernel_core.models import catalog
from tests.support.bound import bound, fine, opened_as_linked, press

MENU = "model"


def test_the_dashboard_opens_on_own_models(computed, monkeypatch, model_dirs):
    name = str(model_dirs["gpt2"])
    monkeypatch.setenv("POSKERNEL_MODELS", name)
    app = fine(opened_as_linked("methods"))
    assert bound(app)[MENU].value == name
    assert bound(app)[MENU].options[:2] == [name, "demo-gpt2"]


def test_a_typed_model_says_what_it_downloads_first(computed, monkeypatch, model_dirs):
    """Nothing else of the page is drawn before the reader agrees."""
    monkeypatch.setenv("POSKERNEL_ALLOW_ANY_MODEL", "1")
    monkeypatch.setattr(catalog, "download_bytes", lambda located: 548_105_171)
    app = opened_as_linked("methods", model=str(model_dirs["gpt2"]))
    (told,) = (each.value for each in app.error)
    assert "They take 548 MB" in told
    assert "Download 548 MB" == app.button(key="download").label
    assert "method" not in bound(app)
    app = press(app, "download")
    assert "method" in bound(app)
    assert "download" not in [each.key for each in app.button]


@pytest.mark.parametrize(
    ("address", "proxies", "headers", "local"),
    [
        ("localhost", "", {}, True),
        ("127.0.0.1", "", {}, True),
        ("0.0.0.0", "", {}, False),
        (None, "", {}, False),
        ("localhost", "10.0.0.0/8", {}, False),
        ("localhost", "", {"X-Forwarded-For": "192.0.2.7"}, False),
    ],
)
def test_any_model_on_this_machine_alone(monkeypatch, address, proxies, headers, local):
    monkeypatch.delenv("POSKERNEL_ALLOW_ANY_MODEL", raising=False)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", proxies)
    monkeypatch.setattr(st, "get_option", {"server.address": address}.get)
    monkeypatch.setattr(host.st, "context", SimpleNamespace(headers=headers))
    assert host.any_model() is local
    for says in (True, False):
        monkeypatch.setenv("POSKERNEL_ALLOW_ANY_MODEL", str(int(says)))
        assert host.any_model() is says
