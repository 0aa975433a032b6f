"""Keeps a live run on course, and records each action: policies, their ladders of interventions, and commands by hand.

Detectors say what is wrong, and a policy says what is done about it. Nothing here judges values, and no diagnosis is
made here.
"""
