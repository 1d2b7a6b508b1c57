"""Tests of analyses/rotary."""
