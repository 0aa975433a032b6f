"""The interventions that steadytrain ships, one file each. An intervention knows no other and decides nothing."""
