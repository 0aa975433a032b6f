"""Launches the script once more and gathers facts about it, one file for each subject.

A survey changes nothing in the inspected steps and draws no conclusions.
"""
