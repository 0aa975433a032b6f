"""Two things held against each other: checkpoints, and runs. Pure values in and out, without torch."""
