"""Tests of analyses/interventions."""
