"""Experiments on random tokens."""
