"""Tests of passes."""
