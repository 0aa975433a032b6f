"""Alerts of a run: which are due, their text, and the services and the command that they go to. All of it works in a
process of its own, like an exporter. It judges no value: severities come from detectors, responses from the policy.
"""
