"""Tests of analyses/entropy."""
