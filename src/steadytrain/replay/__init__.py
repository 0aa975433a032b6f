"""Replays recorded steps in a new process and compares them bit for bit; launches, feeds, restores and sandboxes the
script.

It changes nothing in a step: changes belong to ``trial_runs``.
"""
