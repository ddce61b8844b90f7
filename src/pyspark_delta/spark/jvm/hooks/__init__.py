"""Hooks in the JVM: the Java text of their classes, and the Python object that they call."""
