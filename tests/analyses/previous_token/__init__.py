"""Tests of analyses/previous_token."""
