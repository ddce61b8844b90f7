"""CREATE, REPLACE and ALTER TABLE, and clones."""
