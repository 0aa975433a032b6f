"""The command line: one file per command, loaded only when its command is called."""
