"""Replays the failing step in a new process and names the first operation that produced a non-finite value.

The tracer itself is in ``tracing``.
"""
