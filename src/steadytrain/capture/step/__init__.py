"""A step while it forms: its inputs, its loss, its optimizers, the gate, and the stop.

No detector and no file format lives here.
"""
