"""Hooks into a live training process: measures each step, guards the update, and freezes incidents.

It judges nothing, and uses detectors, tracing and exporters only through contracts.
"""
