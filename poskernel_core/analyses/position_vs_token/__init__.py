"""What a head does with position or token alone."""
