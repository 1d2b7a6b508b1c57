"""Tests, with the oracles and the tiny models they compare against."""
