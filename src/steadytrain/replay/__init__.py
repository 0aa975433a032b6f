"""Experiments on a recorded incident: re-run it and find the first bad operation."""
