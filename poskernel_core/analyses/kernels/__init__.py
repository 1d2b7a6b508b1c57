"""Positional kernels: of every head, of one, as a map, and their distances."""
