"""What heads that attend by position alone cost, as figures."""
