"""Replays recorded steps in a new process and compares them bit for bit. Launches, feeds, restores and sandboxes the
script.

Replays change nothing in a step. Changed replays belong to ``trial_runs``.
"""
