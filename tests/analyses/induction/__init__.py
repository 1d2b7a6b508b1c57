"""Tests of analyses/induction."""
