"""Results as files, galleries, hub cards and notebook views."""
