"""Delta's statements: which they are, and what runs them."""
