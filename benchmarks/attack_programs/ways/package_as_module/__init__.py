"""A package that is run as `python -m`, with relative imports and a data file."""
