"""The bag of tokens that contextual heads of layer 0 fill, and the neurons that the bag drives."""
