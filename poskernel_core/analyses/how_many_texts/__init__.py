"""How many texts a number needs."""
