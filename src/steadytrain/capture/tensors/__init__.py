"""What is measured of tensors beyond the gate's own look, and in which steps."""
