"""Tests of analyses/training."""
