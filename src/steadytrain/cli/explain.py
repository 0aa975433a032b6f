"""``steadytrain explain``: what a symptom or a cause means, what may bring it about, what to do next."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.argument("name", required=False)
def command(as_json: bool, name: str | None) -> None:
    """Explain the symptom or cause NAME; without NAME, list all.

    Of a symptom: what it means, what may have caused it, what to do next, and the thresholds with where their numbers
    come from. Of a cause: what it is, what it looks like, what confirms it, and what mends it. A few names are both.
    """
    import json

    from steadytrain import catalog
    from steadytrain.causes import catalog as cause_catalog

    if name is not None:
        click.echo(_one(name, as_json=as_json).rstrip("\n"))
        return
    symptoms = [(entry.name, entry.summary) for entry in catalog.explanations()]
    causes = [
        (known, cause_catalog.explanation_of(known, cause).summary) for known, cause in cause_catalog.causes().items()
    ]
    failed = (*catalog.broken(), *cause_catalog.broken())
    if as_json:
        document = {
            "schema": "steadytrain.explanations/1",
            "symptoms": [{"name": known, "summary": summary} for known, summary in symptoms],
            "causes": [{"name": known, "summary": summary} for known, summary in causes],
            "broken": [{"entry_point": plugin.entry_point, "why": plugin.why} for plugin in failed],
        }
        click.echo(json.dumps(document, indent=2))
        return
    width = max(len(known) for known, _ in (*symptoms, *causes))
    for known, summary in symptoms:
        click.echo(f"{known:<{width}}  {summary}")
    click.echo("\nCauses:\n")
    for known, summary in causes:
        click.echo(f"{known:<{width}}  {summary}")
    for plugin in failed:
        click.echo(f"not usable: {plugin.entry_point}: {plugin.why}", err=True)
    click.echo("\nsteadytrain explain NAME tells what one means, what may cause it and what to do next.")


def _one(name: str, *, as_json: bool) -> str:
    """The symptom of this name, else the cause; in text both, where a name is both."""
    import json

    from steadytrain import catalog
    from steadytrain.causes import catalog as cause_catalog

    detectors = {catalog.detector_name(type(detector)) for detector in catalog.detectors()}
    causes = cause_catalog.causes()
    if as_json:
        found = (
            catalog.explanation(name) if name in detectors or name not in causes else cause_catalog.explanation(name)
        )
        return json.dumps(found.to_json(), indent=2)
    if name in detectors and name in causes:
        return f"{catalog.explain(name)}\nAs a cause\n\n{cause_catalog.explanation(name).text()}"
    if name in causes:
        return cause_catalog.explanation(name).text()
    return catalog.explain(name) if name in detectors else _unknown(name, [*detectors, *causes])


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    from steadytrain.errors import UsageError

    wanted = name.lower().replace("_", "-")
    near = difflib.get_close_matches(wanted, sorted(set(known)), n=3, cutoff=0.5) or sorted(
        {other for other in known if wanted in other}
    )
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(sorted(set(known)))}"
    raise UsageError(f"nothing is called {name!r}; {hint} (`steadytrain explain` lists all)")
