"""One file per format of data, found by walking this package. ``contract.DataFormat`` says what one is held to."""
