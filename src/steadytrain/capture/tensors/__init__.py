"""Measures tensors in addition to the gate, and schedules the steps of these measurements.

Nothing here interprets a measurement.
"""
