"""Weighs causes by signs and trial outcomes, decides what is proven, and builds the answer; one file per cause.

It runs nothing: trials are run by ``trial_runs``.
"""
