"""Heads over the training of a model: a measure, or a kernel, at every checkpoint."""
