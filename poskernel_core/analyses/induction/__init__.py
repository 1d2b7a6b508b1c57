"""Induction: which heads do it, which candidate they prefer, and whether norms are the cause."""
