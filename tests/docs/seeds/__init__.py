"""The documents that the product began with, claim by claim, each held against our code."""
