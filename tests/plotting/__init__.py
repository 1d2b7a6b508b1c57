"""Tests of plotting."""
