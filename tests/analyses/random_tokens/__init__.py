"""Tests of analyses/random_tokens."""
