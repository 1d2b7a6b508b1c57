"""Tests of analyses/bag."""
