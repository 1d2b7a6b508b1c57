"""Tests of analyses/kernels."""
