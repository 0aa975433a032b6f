"""Hooks into a live training process: measures each step, guards the update, and freezes incidents.

It judges nothing, and knows detectors, tracing and exporters by contracts only.
"""
