"""``python -m steadytrain``."""

from steadytrain.cli.main import entry

if __name__ == "__main__":
    entry()
