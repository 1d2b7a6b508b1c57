"""What makes the first key a sink: its place, its position id, its token, or the queries."""
