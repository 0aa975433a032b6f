"""One file per tool that a run can be sent to. Only that file imports the tool's library, at its top."""
