"""Replays backwards from a symptom and finds the first step at which a measured quantity deviated.

It reports what deviated and when, but no cause.
"""
