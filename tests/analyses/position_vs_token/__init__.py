"""Tests of analyses/position_vs_token."""
