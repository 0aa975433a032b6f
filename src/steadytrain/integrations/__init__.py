"""One file a trainer of other libraries: it begins a watch with the fit and ends it with it."""
