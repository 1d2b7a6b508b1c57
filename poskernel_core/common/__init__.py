"""Shared basics: errors, run descriptions, axes, files, numbers as text."""
