"""The verbs that move rows: one module for each."""
