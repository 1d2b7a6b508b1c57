"""Tests of analyses/additivity."""
