"""Plant every form of secret at 20 places of a run, use every command on it, and look for what comes through.

``python benchmarks/attack_secrets.py`` prints a table: place, tried, survived. ``--quick`` plants every eighth form and
uses fewer commands, for CI. Exits with 1 if anything came through. Each place gets other random words, so a word that
comes through names its place. Nothing stands here in clear: ``secret_forms`` makes the words when this runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(Path(__file__).parent)]

from secret_forms import Form, forms  # noqa: E402

import builders  # noqa: E402
from steadytrain.core.incident import Finding  # noqa: E402

IN_SCRIPT = ("globals", "argparse", "model-config", "optimizer-group", "batch-kwargs", "batch-keys", "class-names")
IN_SCRIPT += ("module-names", "fetched-batch", "code-line", "exception")
IN_RUN = ("arguments", "environment", "diff", "notebook")
AT_DESK = ("incident-code", "symptom-message", "action", "fact", "tensor-names", "log-column", "data-row", "run-name")
PLACES = (*IN_SCRIPT, *IN_RUN, *AT_DESK)
EVERY_QUICK = 8
WAIT_S = 600.0

SCRIPT = """
    import argparse, json
    import torch
    from torch import nn
    {globals_}
    SETTINGS = argparse.Namespace(**{argparse_!r})

    class Config:
        def to_dict(self):
            return {config!r}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.config = Config()
            for number, name in enumerate({classes!r}):
                self.add_module(f"part{{number}}", type(name, (nn.Identity,), {{}})())
            for name in {modules!r}:
                self.add_module(name, nn.Identity())

        def forward(self, x, notes=None):
            return self.layer(x)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, at):
            return torch.full((4,), float(at)), {fetched!r}

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.param_groups[0].update({group!r})
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, collate_fn=lambda rows: (torch.stack([row[0] for row in rows]), rows[0][1]))
    for epoch in range(2):
        for x, texts in loader:
            out = model(x, notes={{"texts": {kwargs!r}, **dict.fromkeys({keys!r}, 1)}})
            loss = out.pow(2).mean()
            if epoch:
                loss = loss + torch.log(out.sum() * 0) * len({line!r})
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    raise RuntimeError({error!r})
"""  # noqa: E501


EXPORTER = """
    from pathlib import Path
    from typing import final

    from steadytrain.exporters.exporter import Exporter, Tool, incident_text

    @final
    class Everything(Tool):
        requires = install = "everything_sent"

        def begin(self):
            return Writes()

    @final
    class Writes(Exporter):
        def open(self, run):
            self._file = (Path(run.folder) / "everything.txt").open("w")
            print(run, file=self._file)

        def scalars(self, row):
            print(row, file=self._file)

        def histogram(self, histogram):
            print(histogram, file=self._file)

        def symptom(self, symptom):
            print(symptom, file=self._file)

        def incident(self, path, incident):
            print(incident_text(path, incident), file=self._file)

        def flush(self):
            self._file.flush()

        def close(self, ended):
            print(ended, file=self._file)
            self._file.close()
"""


class Attack:
    """One run with planted secrets in ``folder``, and what its commands leave and print."""

    def __init__(self, folder: Path, *, quick: bool, seed: int = 0) -> None:
        self.folder, self.quick = folder, quick
        every = EVERY_QUICK if quick else 1
        self.planted = {place: forms(number)[::every] for number, place in enumerate(PLACES, 100 + seed)}
        self.printed: list[str] = []
        self.failed: list[str] = []

    def texts(self, place: str) -> list[str]:
        return [form.text for form in self.planted[place]]

    def run(self) -> None:
        """Train, then use the commands."""
        self._write_script()
        variables = {f"TORCH_PLACE_{at}": text for at, text in enumerate(self.texts("environment"))}
        options = ("--policy", "observe", "--to", "everything", "--keep-rewind", "--runs-dir", "runs", "--name", "run")
        options += ("--on-incident", "cat >> alerts.jsonl", "--notify-at", "warning")
        said = self._call("run", *options, "train.py", *self.texts("arguments"), variables=variables)
        self.printed.append("\n".join(_ours(said)))
        if not (self.folder / "alerts.jsonl").exists():
            self.failed.append("no alert came")
        for line in self._commands("runs/run"):
            self.printed.append(self._call(*line))
        self._desk()

    def _commands(self, run: str) -> Iterator[Sequence[str]]:
        bundle = next(iter(sorted((self.folder / run / "incidents").glob("step-*"))), None)
        if bundle is None:
            self.failed.append("the run has no incident")
            return
        yield from (("show", run), ("show", run, "--json"), ("show", str(bundle)), ("show", str(bundle), "--json"))
        yield from (
            ("runs", "--runs-dir", "runs"),
            ("report", run, "-o", "run.html"),
            ("bundle", "inspect", str(bundle)),
        )
        yield from (
            ("report", str(bundle), "-o", "bundle.html"),
            ("locate", str(bundle)),
            ("checklist", run, "--json"),
            ("ledger", run),
        )
        yield "ledger", run
        yield "query", run, "SELECT * FROM facts"
        if self.quick:
            return
        yield from (("runs", "--runs-dir", "runs", "--json"), ("locate", str(bundle), "--json"), ("analyze", run))
        yield from (("replay", str(bundle)), ("onset", str(bundle)), ("repro", str(bundle), "-o", "repro"))
        yield from (("diagnose", run, "--budget", "40s"), ("diagnose", run, "--budget", "5s", "--json"))
        yield from (("trial", str(bundle)), ("fix", run, "--budget", "30s"), ("compare", run, run))
        yield from (("debug", run, "--budget", "40s", "-o", "debug.html"), ("bundle", "inspect", str(bundle), "--json"))
        yield from (("preflight", "train.py"), ("preflight", "train.py", "--json"), ("doctor",))
        yield "bundle", "strip", str(bundle), "--no-data", "--no-weights", "-o", "stripped"

    def _call(self, *line: str, variables: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "steadytrain", *line],
            cwd=self.folder,
            env={
                **os.environ,
                **(variables or {}),
                "PYTHONPATH": os.pathsep.join(self._path()),
                "GIT_CEILING_DIRECTORIES": str(self.folder.parent),
            },
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        if "Traceback (most recent call last)" in text and line[0] != "run":
            self.failed.append(f"{' '.join(line[:2])}: {text.strip().splitlines()[-1][:200]}")
        return text

    def _path(self) -> list[str]:
        return [str(self.folder / "sent"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]

    def _write_exporter(self) -> None:
        """A tool of somebody else, which writes down all that it is sent."""
        about = self.folder / "sent" / "everything_sent-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: everything-sent\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[steadytrain.exporters]\neverything = everything_sent:Everything\n")
        (about.parent / "everything_sent.py").write_text(textwrap.dedent(EXPORTER), encoding="utf-8")

    def _write_script(self) -> None:
        self._write_exporter()
        named = {place: {f"v{at}": text for at, text in enumerate(self.texts(place))} for place in PLACES}
        modules = [text for text in self.texts("module-names") if "." not in text]  # torch takes no other names
        text = textwrap.dedent(SCRIPT).format(
            globals_="\n".join(f"g{at} = {one!r}" for at, one in enumerate(self.texts("globals"))),
            argparse_=named["argparse"],
            config=named["model-config"],
            classes=self.texts("class-names"),
            modules=modules,
            fetched=self.texts("fetched-batch"),
            group=named["optimizer-group"],
            kwargs=self.texts("batch-kwargs"),
            keys=self.texts("batch-keys"),
            line=self.texts("code-line"),
            error="\n".join(self.texts("exception")),
        )
        (self.folder / "train.py").write_text(text, encoding="utf-8")
        files = {
            "notes.txt": "\n".join(self.texts("diff")),
            "note.ipynb": json.dumps({"cells": self.texts("notebook")}),
        }
        for name in files:
            (self.folder / name).write_text("empty\n", encoding="utf-8")
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        for line in (("init", "-q"), ("add", "notes.txt", "note.ipynb"), (*who, "commit", "-qm", "first")):
            subprocess.run(["git", *line], cwd=self.folder, check=True, capture_output=True)
        for name, content in files.items():
            (self.folder / name).write_text(content + "\n", encoding="utf-8")

    def _desk(self) -> None:
        """What no script makes at will: every form by itself as a quoted line, a message, a fact, a name."""
        from steadytrain.attach.folder_names import without_secrets

        symptoms = [builders.symptom(412, message=text) for text in self.texts("symptom-message")]
        for at, text in enumerate(self.texts("incident-code")):
            action = replace(builders.incident().action, reason=self.texts("action")[at])
            frozen = builders.incident(
                412, finding=Finding(builders.located(code=text), text), symptoms=(symptoms[at],), action=action
            )
            facts = {**builders.FACTS, "note": self.texts("fact")[at], "warnings": [self.texts("fact")[at]]}
            name = without_secrets(self.texts("run-name")[at]).replace("/", "-")[:100]
            builders.bad_run(
                self.folder / "runs" / f"desk-{at}-{name}", incidents=[frozen], symptoms=[symptoms[at]], facts=facts,
                notes=self.texts("tensor-names")[at],
            )  # fmt: skip
        for desk in sorted((self.folder / "runs").glob("desk-*"))[:: 1 if not self.quick else 10]:
            self.printed += [_in_process("show", str(desk)), _in_process("show", str(desk), "--json")]
            self.printed.append(_in_process("report", str(desk), "-o", str(self.folder / f"{desk.name}.html")))
        rows = [json.dumps({"text": text, "label": at % 2}) for at, text in enumerate(self.texts("data-row"))]
        (self.folder / "data.jsonl").write_text("\n".join(rows * 2) + "\n", encoding="utf-8")
        self.printed += [self._call("check-data", "data.jsonl"), self._call("check-data", "data.jsonl", "--json")]
        columns = ",".join(["step", "loss", *(re.sub(r"[,\"\n]", " ", text) for text in self.texts("log-column"))])
        lines = [
            ",".join([str(step), f"{4 / (step + 1)}", *["1"] * len(self.texts("log-column"))]) for step in range(40)
        ]
        (self.folder / "log.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
        self.printed += [self._call("analyze", "log.csv"), self._call("analyze", "log.csv", "--json")]

    def found(self) -> dict[str, list[tuple[Form, str]]]:
        """What came through, by place: the form and where it was seen."""
        planted = ("train.py", "notes.txt", "note.ipynb", "data.jsonl", "log.csv")
        files = [file for file in self.folder.rglob("*") if file.is_file() and ".git" not in file.parts]
        seen = {str(file.relative_to(self.folder)): file.read_bytes() for file in files if file.name not in planted}
        seen |= {f"printed {at}": text.encode() for at, text in enumerate(self.printed)}
        seen["names of files"] = "\n".join(seen).encode()
        through: dict[str, list[tuple[Form, str]]] = {place: [] for place in PLACES}
        for place, planted_forms in self.planted.items():
            for form in planted_forms:
                where = next((name for name, data in seen.items() if _holds(data, form.secret)), None)
                if where is not None:
                    through[place].append((form, where))
        return through


def _holds(data: bytes, secret: str) -> bool:
    forms_of_it = {secret, json.dumps(secret)[1:-1]}
    if secret.isdigit():  # six digits also stand in other numbers
        return re.search(rb"(?<![\d.e-])" + secret.encode() + rb"(?![\d.])", data) is not None
    return any(one.encode() in data for one in forms_of_it)


def _ours(text: str) -> Iterator[str]:
    """Our lines of standard error: the script's own traceback is its own."""
    ours = False
    for line in text.splitlines():
        ours = line.startswith("steadytrain: ") or (ours and line.startswith("  "))
        if ours:
            yield line


def _in_process(*line: str) -> str:
    from click.testing import CliRunner

    from steadytrain.cli.main import commands

    return CliRunner().invoke(commands, list(line)).output


def corpus(seed: int) -> tuple[int, list[str]]:
    """How many texts of ``attack_programs`` were redacted; what is wrong: a secret that stayed, a word that went."""
    sys.path.insert(0, str(Path(__file__).parent / "attack_programs"))
    from healthy_corpus import healthy
    from secrets_corpus import planted

    from steadytrain.storage.redaction import redact_text

    secrets = list(planted(seed))
    wrong = [f"the corpus: {one.kind}, {one.form}" for one in secrets if one.secret in redact_text(one.text)]
    wrong += [f"no secret, but redacted: {text[:60]}" for text in healthy() if redact_text(text) != text]
    return len(secrets) + len(healthy()), wrong


def attack(folder: Path, *, quick: bool, seed: int = 0) -> tuple[Attack, dict[str, list[tuple[Form, str]]]]:
    """Run the attack in ``folder``; what came through, by place."""
    made = Attack(folder, quick=quick, seed=seed)
    made.run()
    return made, made.found()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every eighth form, fewer commands")
    parser.add_argument("--seconds", type=float, help="it takes what it takes: a minute in the short form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")
    options = parser.parse_args()
    quick = options.quick
    with tempfile.TemporaryDirectory(prefix="attack-secrets-") as folder:
        made, through = attack(Path(folder), quick=quick, seed=options.seed)
    texts, wrong = corpus(options.seed)
    tried = sum(map(len, made.planted.values())) + texts
    lost = sum(map(len, through.values())) + len(wrong)
    print("| place | tried | survived |\n|---|---|---|")
    for place, planted in made.planted.items():
        print(f"| {place} | {len(planted)} | {len(planted) - len(through[place])} |")
    print(f"| text by itself, with and without secrets | {texts} | {texts - len(wrong)} |")
    print(f"| all | {tried} | {tried - lost} |")
    if options.json is not None:
        survived = {place: {"tried": len(planted), "survived": len(planted) - len(through[place])}
                    for place, planted in made.planted.items()}  # fmt: skip
        options.json.write_text(json.dumps({"places": survived, "failed": made.failed}, indent=1), encoding="utf-8")
    for place, leaks in through.items():
        for form, where in leaks[:20]:
            print(f"FAILED came through: {form.name} at {place}, seen in {where}")
    for one in [*wrong, *made.failed]:
        print(f"FAILED {one}")
    return 1 if lost or made.failed else 0


if __name__ == "__main__":
    sys.exit(main())
