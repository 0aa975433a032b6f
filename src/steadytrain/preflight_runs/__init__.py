"""Runs preflight checks: takes model, batches and loss from a script or from code, checks copies, and restores
everything.

The checks themselves are in ``checks.model``.
"""
