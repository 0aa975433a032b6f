"""What makes steps replayable: snapshots of the state, and the tape of what the model was fed.

Nothing is replayed here.
"""
