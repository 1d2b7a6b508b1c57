"""Tests of analyses/headvis."""
