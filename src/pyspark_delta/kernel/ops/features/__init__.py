"""Add features to tables and drop them, and rewrite the files that depend on them."""
