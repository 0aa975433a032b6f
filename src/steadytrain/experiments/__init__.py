"""Defines a trial: its schedule of recorded steps, its change, and the verdict on its outcome.

It runs nothing, and names no cause.
"""
