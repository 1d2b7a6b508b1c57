"""Which earlier parts of a model write what a head knows of position."""
