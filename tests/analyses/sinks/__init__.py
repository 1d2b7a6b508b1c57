"""Tests of analyses/sinks."""
