"""Replays backwards from a symptom and finds the first step at which a measured quantity deviated.

It names no cause, only what deviated and when.
"""
