"""Measurements of tensors beyond the gate, and the schedule of the steps that make them.

No measurement is interpreted here.
"""
