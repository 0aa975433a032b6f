"""One file per tool that a run can be sent to: its library is imported at its top, and nowhere else."""
