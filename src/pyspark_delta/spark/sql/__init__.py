"""Delta's SQL statements: recognizes, parses and runs them."""
