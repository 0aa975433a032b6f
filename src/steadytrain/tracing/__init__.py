"""Runs one step operation by operation and finds which operation made the first bad value, on which line.

It works on one given step; finding, launching and restoring that step is ``replay``.
"""
