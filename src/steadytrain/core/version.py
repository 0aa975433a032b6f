"""The version of this package, for files and messages."""

__version__ = "0.1.0"
