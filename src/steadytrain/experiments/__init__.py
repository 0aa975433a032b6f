"""Trials of an incident: the contract, and one file a trial. Torch-free."""
