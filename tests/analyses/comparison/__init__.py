"""Tests of analyses/comparison."""
