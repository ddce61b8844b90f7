"""Names and locations of tables, and what the catalog holds of them."""
