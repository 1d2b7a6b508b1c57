"""Contextual heads: spread of denominators, behaviour groups, content weights."""
