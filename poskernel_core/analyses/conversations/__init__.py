"""How heads attend in conversations: to the template, to what is said, and by whom."""
