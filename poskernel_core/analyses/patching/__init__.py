"""What a head carries from one prompt to another."""
