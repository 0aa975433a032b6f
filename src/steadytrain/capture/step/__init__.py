"""Follows the step in progress: its inputs, its loss, its optimizers, the gate, and the stop.

No detector and no file format lives here.
"""
