"""Passes: compute the statistics of a run from windows of text, with checkpoints. Needs torch."""
