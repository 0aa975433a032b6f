"""Records a live run: its history, its tables, the schedule of detectors, and when a symptom becomes an incident.

It puts no hook into torch: ``capture`` calls it through the contract ``Recorder``.
"""
