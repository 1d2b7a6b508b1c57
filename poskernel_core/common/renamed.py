"""Renamed models: an old name leads to the model."""

MODELS = {"demo-gpt2-smooth": "demo-gpt2", "smollm2-135m": "smollm2-135m-instruct-q4"}
