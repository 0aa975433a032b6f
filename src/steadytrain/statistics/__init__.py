"""Robust statistics of a window: the rolling baseline, what left it, for how long, and which changes are harmless.

Numbers in, numbers out: it knows no detector.
"""
