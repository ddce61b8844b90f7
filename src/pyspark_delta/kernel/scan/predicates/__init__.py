"""Predicates: parsed from SQL, bound to a schema, evaluated on Arrow columns."""
