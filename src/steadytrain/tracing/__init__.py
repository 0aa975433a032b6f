"""Traces one step operation by operation and finds the operation, and its line, that made the first non-finite value.

It works on a given step; ``replay`` finds, launches and restores that step.
"""
