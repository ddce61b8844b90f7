"""What CONVERT TO DELTA is made of: the files, what their footers say, their actions."""
