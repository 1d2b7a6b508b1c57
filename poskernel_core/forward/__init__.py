"""Load models and run forward passes with observers and edits. Imports torch."""
