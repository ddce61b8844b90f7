"""VACUUM: delete files that a table no longer needs; repair: remove missing files from its log."""
