"""Tests of analyses/own_text."""
