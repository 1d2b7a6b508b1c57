"""Renamed models: errors for an old name give the new one, and old links still work."""

MODELS = {"demo-gpt2-smooth": "demo-gpt2"}


def told(name: str) -> str:
    """Return a sentence that gives a model's new name; empty if it was not renamed."""
    return f"{name!r} is called {MODELS[name]!r} now." if name in MODELS else ""
