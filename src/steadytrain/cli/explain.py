"""``steadytrain explain``: what a symptom, a cause or a check means, what may bring it about, what to do next."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.argument("name", required=False)
def command(as_json: bool, name: str | None) -> None:
    """Explain the symptom, cause or check NAME; without NAME, list all.

    Of a symptom: what it means, what may have caused it, what to do next, and the thresholds with where their numbers
    come from. Of a cause: what it is, what it looks like, what confirms it, and what mends it. A few names are both.
    Of a check of `steadytrain preflight`: what it looks at, its thresholds, what it costs. Of one of
    `steadytrain check-data`: what it means and what to do.
    """
    import json

    from steadytrain.checks.data.data_pages import data_pages
    from steadytrain.checks.pages import check_pages
    from steadytrain.diagnosis import cause_catalog
    from steadytrain.grouping import catalog

    if name is not None:
        click.echo(_one(name, as_json=as_json).rstrip("\n"))
        return
    symptoms = [(entry.name, entry.summary) for entry in catalog.explanations()]
    causes = [(known, cause_catalog.explanation(known).summary) for known in cause_catalog.causes()]
    checks, of_data = check_pages(), data_pages()
    failed = (*catalog.broken(), *cause_catalog.broken())
    if as_json:
        document = {
            "schema": "steadytrain.explanations/1",
            "symptoms": [{"name": known, "summary": summary} for known, summary in symptoms],
            "causes": [{"name": known, "summary": summary} for known, summary in causes],
            "checks": [{"name": page.name, "summary": page.summary} for page in checks],
            "data_checks": [{"name": page.name, "summary": page.summary} for page in of_data],
            "broken": [{"entry_point": plugin.entry_point, "why": plugin.why} for plugin in failed],
        }
        click.echo(json.dumps(document, indent=2))
        return
    pages = [(page.name, page.summary) for page in checks]
    data = [(page.name, page.summary) for page in of_data]
    width = max(len(known) for known, _ in (*symptoms, *causes, *pages, *data))
    for known, summary in symptoms:
        click.echo(f"{known:<{width}}  {summary}")
    click.echo("\nCauses:\n")
    for known, summary in causes:
        click.echo(f"{known:<{width}}  {summary}")
    click.echo("\nChecks of steadytrain preflight:\n")
    for known, summary in pages:
        click.echo(f"{known:<{width}}  {summary}")
    click.echo("\nChecks of steadytrain check-data:\n")
    for known, summary in data:
        click.echo(f"{known:<{width}}  {summary}")
    for plugin in failed:
        click.echo(f"not usable: {plugin.entry_point}: {plugin.why}", err=True)
    click.echo("\nsteadytrain explain NAME tells what one means, what may cause it and what to do next.")


def _one(name: str, *, as_json: bool) -> str:
    """The symptom of this name, else the cause, else the check; in text both, where a name is a symptom and a cause."""
    import json

    from steadytrain.checks.data.data_pages import data_page, data_pages
    from steadytrain.checks.pages import as_text, check_names, check_page
    from steadytrain.diagnosis import cause_catalog
    from steadytrain.grouping import catalog

    detectors = {catalog.detector_name(type(detector)) for detector in catalog.detectors()}
    causes = cause_catalog.causes()
    page = check_page(name) if name not in detectors and name not in causes else None
    if page is not None:
        return json.dumps(page.to_json(), indent=2) if as_json else as_text(page)
    of_data = data_page(name) if name not in detectors and name not in causes else None
    if of_data is not None:
        return json.dumps(of_data.to_json(), indent=2) if as_json else of_data.text()
    if as_json:
        found = (
            catalog.explanation(name) if name in detectors or name not in causes else cause_catalog.explanation(name)
        )
        return json.dumps(found.to_json(), indent=2)
    if name in detectors and name in causes:
        return f"{catalog.explain(name)}\nAs a cause\n\n{cause_catalog.explanation(name).text()}"
    if name in causes:
        return cause_catalog.explanation(name).text()
    if name in detectors:
        return catalog.explain(name)
    return _unknown(name, [*detectors, *causes, *check_names(), *(entry.name for entry in data_pages())])


def _unknown(name: str, known: list[str]) -> str:
    from steadytrain.core.errors import UsageError
    from steadytrain.core.plugins import nearest

    raise UsageError(f"nothing is called {name!r}; {nearest(name, sorted(known))} (`steadytrain explain` lists all)")
