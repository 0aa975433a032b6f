"""The trials that steadytrain ships.

A trial plans and judges; ``trial_runs.changes`` makes the change.
"""
