"""``steadytrain explain``: what a symptom means, what may cause it, what to do next."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.argument("name", required=False)
def command(as_json: bool, name: str | None) -> None:
    """Explain the symptom NAME; without NAME, list all.

    What it means, what may have caused it, what to do next, and the thresholds with where their numbers come from.
    """
    import json

    from steadytrain import catalog

    if name is not None:
        text = json.dumps(catalog.explanation(name).to_json(), indent=2) if as_json else catalog.explain(name)
        click.echo(text.rstrip("\n"))
        return
    entries = catalog.explanations()
    failed = catalog.broken()
    if as_json:
        document = {
            "schema": "steadytrain.explanations/1",
            "symptoms": [{"name": entry.name, "summary": entry.summary} for entry in entries],
            "broken": [{"entry_point": plugin.entry_point, "why": plugin.why} for plugin in failed],
        }
        click.echo(json.dumps(document, indent=2))
        return
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        click.echo(f"{entry.name:<{width}}  {entry.summary}")
    for plugin in failed:
        click.echo(f"not usable: {plugin.entry_point}: {plugin.why}", err=True)
    click.echo("\nsteadytrain explain NAME tells what one means, what may cause it and what to do next.")
