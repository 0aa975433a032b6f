"""The trials that steadytrain ships.

A trial plans and judges; the change itself is made in ``trial_runs.changes``.
"""
