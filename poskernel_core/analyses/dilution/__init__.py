"""Dilution over many keys, and contexts longer than the trained length."""
