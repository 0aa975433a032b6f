"""One file per preflight check of a model, and one per check of training data.

A check runs no script, and knows no other check.
"""
