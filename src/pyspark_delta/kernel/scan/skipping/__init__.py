"""Skip files and row groups that hold no row that a predicate selects."""
