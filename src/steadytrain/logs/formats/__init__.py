"""One file per log format, each with exactly one ``Reader``.

Formats do not know each other, and none registers itself.
"""
