"""One file per check of data, found by walking this package. ``contract.DataCheck`` says what one is held to."""
