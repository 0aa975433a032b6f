"""What `benchmarks/symptoms.py` puts detectors to the test with: healthy runs, faults, and the rules of others."""
