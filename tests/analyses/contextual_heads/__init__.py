"""Tests of analyses/contextual_heads."""
