"""OPTIMIZE, auto compaction, VACUUM, RESTORE, REORG, and DROP FEATURE."""
