"""Heads of any models and runs beside each other."""
