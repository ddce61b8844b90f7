"""Session settings, and options of reads and writes, which all rooms above use."""
