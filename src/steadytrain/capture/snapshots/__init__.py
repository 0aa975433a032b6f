"""What makes steps replayable: snapshots of the state and the tape of what was fed to the model."""
