"""Parse the lines of commits into Arrow tables of file actions."""
