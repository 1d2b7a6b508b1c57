"""Tests of analyses/head_measures."""
