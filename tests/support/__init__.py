"""Builders of models, oracles, servers and browsers for the tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""


class Made(dict):
    """What is made of each name when it is first asked for."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __missing__(self, name):
        self[name] = self.make(name)
        return self[name]

    def __repr__(self):
        return f"Made({', '.join(self)})"
