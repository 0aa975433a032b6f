"""Records what a replay needs: snapshots of the state, and the tape of the model's inputs.

Nothing is replayed here.
"""
