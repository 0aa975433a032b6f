"""``steadytrain policy``: what a run may do to itself, and the interventions that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli._output import say, say_document, say_lines

if TYPE_CHECKING:
    from steadytrain.guard.policy import Policy


@click.group()
def command() -> None:
    """Show the policies of `run --policy`, and check a policy file."""


@command.command("show")
@click.argument("name", default="stop", metavar="[POLICY]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.policy/1).")
def show(name: str, *, as_json: bool) -> None:
    """Print the effective policy as a TOML file, every entry said.

    POLICY is observe, stop, skip, steady, or a TOML file. The output is itself a policy file to start from. Needs no
    PyTorch. A file that is no policy ends with status 2 and the entry that is wrong.
    """
    from steadytrain.guard.policy_files import as_toml, find_policy

    policy = find_policy(name)
    if as_json:
        say_document(_document(policy), ensure_ascii=True)
    else:
        say(as_toml(policy))


@command.command("interventions")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.interventions/1).")
def interventions(*, as_json: bool) -> None:
    """List the interventions that a ladder may name, with their settings."""
    entries = list(_interventions())
    if as_json:
        say_document({"schema": "steadytrain.interventions/1", "interventions": entries}, ensure_ascii=True)
        return
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        settings = ", ".join(_said(key, value) for key, value in entry["settings"].items())
        say_lines(f"{entry['name']:{width}}  {entry['what']}" + (f" ({settings})" if settings else ""))


def _said(key: str, value: float | str) -> str:
    return f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value!r}"


def _document(policy: Policy) -> dict[str, Any]:
    from dataclasses import asdict

    from steadytrain.guard.policy_files import symptom_names

    return {
        "schema": "steadytrain.policy/1",
        "policy": policy.name,
        "starts_from": policy.base,
        "symptoms": {name: policy.response(name) for name in sorted(symptom_names())},
        "default": policy.default,
        "always": list(policy.always),
        "budget": asdict(policy.budget),
        "ladders": {name: [list(rung) for rung in rungs] for name, rungs in policy.ladders.items()},
        "interventions": {name: dict(settings) for name, settings in policy.settings.items()},
    }


def _interventions() -> Any:
    from dataclasses import fields

    from steadytrain.guard.intervention import kinds

    for name, kind in kinds().items():
        settings = {one.name.replace("_", "-"): one.default for one in fields(kind) if not one.name.startswith("_")}  # type: ignore[arg-type]
        yield {"name": name, "what": kind().describe(), "settings": settings, "replayed": kind.replayed}
