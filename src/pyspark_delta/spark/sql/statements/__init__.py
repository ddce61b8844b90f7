"""One module for each family of statements, which parses it and runs the command."""
