"""Compares checkpoints with each other or with a run, and runs with runs or groups of runs.

It takes values and returns differences: it launches nothing and prints nothing.
"""
