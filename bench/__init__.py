"""Speed and memory, measured beside other implementations."""
