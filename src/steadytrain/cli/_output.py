"""Everything that a command prints goes through here, without secrets."""

from __future__ import annotations

from typing import Any

import click

from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_text


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print redacted text."""
    click.echo(redact_text(text), err=err, nl=nl)


def say_document(document: Any, *, indent: int = 1, ensure_ascii: bool = False) -> None:
    """Print a document as redacted JSON."""
    click.echo(as_json(document, indent=indent, ensure_ascii=ensure_ascii))


def say_with_own_secret(text: str) -> None:
    """Print text that holds a secret which this command made for the user: redacted it would be of no use."""
    click.echo(text)
