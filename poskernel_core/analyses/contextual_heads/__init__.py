"""Contextual heads: variation of denominators, behaviour groups, content weights."""
