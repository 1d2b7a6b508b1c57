"""Experiments on random tokens: how they are asked for, drawn and run."""
