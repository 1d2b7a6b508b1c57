"""Builders of models, oracles, servers and browsers for the tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
