"""The watched run as it is judged live: its history, the detectors' turns, what is recorded and sent on."""
