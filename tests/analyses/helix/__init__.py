"""Tests of analyses/helix."""
