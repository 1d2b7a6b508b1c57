"""Tests of forward."""
