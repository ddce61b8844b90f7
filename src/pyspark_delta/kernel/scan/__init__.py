"""Which files and which rows a reader needs."""
