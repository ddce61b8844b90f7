"""What is changed in PySpark, one module for each of its classes that users hold in their hands.

A module's `CHANGED` maps a class and a method's name to a function that takes the method and gives
the one to stand in its place.  `session` puts them there and takes them away.
"""
