"""The version of this package, for what is written and shown."""

__version__ = "0.1.0"
