"""Heads with position only or token only."""
