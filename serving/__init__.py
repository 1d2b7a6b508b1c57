"""What stands around the app in its server: headers of responses, and the upkeep of memory."""
