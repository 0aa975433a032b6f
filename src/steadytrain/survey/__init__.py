"""Launches the script once more and gathers facts about it, one file per subject.

A survey changes nothing in the steps that it inspects, and draws no conclusion.
"""
