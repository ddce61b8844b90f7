"""A lexer for SQL text, and literals and names in Spark's syntax."""
