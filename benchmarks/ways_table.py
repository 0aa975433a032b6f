"""The table of ``ways.py`` as Markdown: a row says what was seen, or why there is nothing to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROUNDING = 2e-4
"""Largest difference between a loss and the framework's own, relative to one or the loss: logs have four decimals."""

COST_MAX = 0.05
"""Largest share of a batch's CPU time that the watch may take."""

BEGIN, END = "<!-- matrix: made by make ways -->", "<!-- end of the matrix -->"
HEAD = ("framework", "weights", "loss, steps", "NaN", "rate x1000", "healthy run", "CPU a batch", "date")
STOPPED = 70


def write_table(rows: list[dict[str, Any]], page: Path | None) -> str:
    """The table; also written between the marks of ``page``."""
    ordered = sorted(rows, key=lambda row: row["title"].lower())
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD), *(line_of(row) for row in ordered)]
    table = "\n".join(lines)
    if page is not None:
        text = page.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        _, after = rest.split(END)
        page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    return table


def line_of(row: dict[str, Any]) -> str:
    versions = dict(row.get("versions", {}))
    torch = versions.pop("torch", "")
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    title = f"**{row['title']}**" + (f" ({named}; torch {torch})" if named else "")
    title += f". {row['note']}" if row["note"] else ""
    when = f"{row['date']}, {row['machine']}, Python {row['python']}" if "date" in row else ""
    if "failed" in row:
        return f"| {title} | {escaped(row['failed'])} | | | | | | {when} |"
    arms = row["arms"]
    spent = row.get("cost") or costs([(arms["bare"], arms["healthy"])])
    cells = (weights(arms), losses(row), planted(arms), rated(arms), quiet(arms), cost(spent))
    return "| " + " | ".join([title, *map(escaped, cells), when]) + " |"


def weights(arms: dict[str, Any]) -> str:
    if arms["healthy"].get("digest") == arms["bare"]["digest"]:
        return "identical"
    if arms["again"].get("digest") != arms["bare"]["digest"]:
        return "differ also between two bare runs"
    ended = f"exit status {arms['healthy']['status']} {arms['healthy']['message']}".strip()
    return f"**differ** ({ended})"


def losses(row: dict[str, Any]) -> str:
    loss, run = row["loss"], row["arms"]["healthy"].get("run")
    own, seen = row["arms"]["bare"]["steps"], run["steps"] if run else 0
    steps = f"{seen} of {own} steps" if seen == own else f"**{seen} of {own} steps**"
    if run and run["streams"] > 1:
        steps += f" in the first of {run['streams']} streams"
    if not loss["own"]:
        return f"the framework logs no loss of a step; {steps}"
    if not loss["compared"]:
        return f"**no loss**; {steps}"
    same = loss["gap"] <= ROUNDING
    return f"{'same' if same else '**differs**'} (by {loss['gap']:.0e} at most); {steps}"


def planted(arms: dict[str, Any]) -> str:
    arm = arms["nan"]
    run = arm.get("run", {})
    kept = arm.get("finite")
    if arm["status"] == STOPPED and kept:
        found = [f"`{run['operation']}`"] if run.get("operation") else []
        found += [f"{run['rows'][0]} held it"] if run.get("rows") else []
        return f"stopped before the update, {', '.join(found) or 'no operation named'}"
    named = [name for _, name in run.get("symptoms", []) if name.startswith("nonfinite")]
    if kept and named:
        return f"no update; the framework ended the script, and `{named[0]}` is recorded: {arm['message']}"
    end = f"exit status {arm['status']}, weights {'finite' if kept else 'not finite'}"
    return f"**not stopped**: {end} {arm['message']}".strip()


def rated(arms: dict[str, Any]) -> str:
    run = arms["rate"].get("run", {})
    loud = [name for severity, name in run.get("symptoms", []) if severity != "note"]
    return ", ".join(dict.fromkeys(loud)) or "**nothing said**"


def quiet(arms: dict[str, Any]) -> str:
    run = arms["healthy"].get("run")
    if run is None:
        return "**not recorded**"
    loud = [name for severity, name in run["symptoms"] if severity != "note"]
    return f"**{', '.join(loud)}**" if loud else "quiet"


def costs(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Least CPU seconds of the bare and of the watched runs: from batch to batch, and of the whole training."""
    least: dict[str, Any] = {"pairs": len(pairs)}
    for place, kind in enumerate(("bare", "watched")):
        for name in ("later_call_cpu_s", "cpu_s"):
            least[f"{kind}_{name}"] = min((found for pair in pairs if (found := pair[place].get(name))), default=None)
    return least


def cost(found: dict[str, Any]) -> str:
    if not found.get("watched_cpu_s"):
        return "**not measured**"
    before, after = found["bare_later_call_cpu_s"], found["watched_later_call_cpu_s"]
    whole = f"{found['watched_cpu_s'] - found['bare_cpu_s']:+.1f} s in all"
    if not before or not after:
        return whole
    pairs = f"{found['pairs']} pair{'' if found['pairs'] == 1 else 's'}"
    share = f"{(after / before - 1) * 100:+.0f} %"
    return f"{before * 1e3:.1f} ms {share if after <= before * (1 + COST_MAX) else f'**{share}**'}; {whole}; {pairs}"


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
