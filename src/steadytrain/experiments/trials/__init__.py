"""One file a trial, found by being there."""
