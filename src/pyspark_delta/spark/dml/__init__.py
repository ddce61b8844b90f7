"""DELETE and UPDATE, and what MERGE shares with them."""
