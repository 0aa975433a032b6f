"""What lies on disk: the run folder with its step segments and index, and the incident bundle. No torch."""
