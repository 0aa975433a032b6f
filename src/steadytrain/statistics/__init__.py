"""Robust numbers over a window of steps: what was usual, what left it, and for how long. Pure, without torch."""
