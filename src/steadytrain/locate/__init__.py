"""Replays the failing step in a new process and names the first operation that produced a bad value.

The tracing itself is in ``tracing``.
"""
