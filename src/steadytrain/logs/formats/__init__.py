"""One file a format. A file here holds exactly one ``Reader``; nothing registers itself."""
