"""What experiments do with a model: changes to its forward pass, and what is measured of them."""
