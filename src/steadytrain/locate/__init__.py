"""The failing step of a recorded incident, done again in a new process and traced."""
