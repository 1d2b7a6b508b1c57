"""Tests of analyses/how_many_texts."""
