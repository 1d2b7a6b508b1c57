"""Tests of analyses/score_shares."""
