"""Quick checks of a block without running it: it parses, and the commands, options, targets and keys in it exist.

Each check returns what is wrong, or an empty string.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
import yaml
from doc_blocks import ROOT, Block
from doc_stages import STAGES

from steadytrain.cli.main import Commands
from steadytrain.core.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COMMAND = "steadytrain"
INLINE = re.compile(rf"`({COMMAND} [a-z@-][^`]*)`")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = frozenset(PROJECT["project"]["optional-dependencies"])
TARGETS = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def fault(block: Block) -> str:
    """What is wrong with ``block``."""
    if block.language not in CHECKS:
        return f"the language {block.language!r} is none of {', '.join(CHECKS)}"
    stage = block.directives.get("in")
    if stage is not None and stage.split()[0] not in STAGES:
        return f"the stage {stage!r} is none of {', '.join(STAGES)}"
    return CHECKS[block.language](block)


def inline_commands(page: Path) -> Iterator[str]:
    """The commands in backticks in the prose of a page."""
    for command in INLINE.findall(page.read_text(encoding="utf-8")):
        yield " ".join(command.replace("\\|", "|").split())


def command_fault(words: list[str]) -> str:
    """What is wrong with a call of the steadytrain command: an unknown command or option."""
    command: click.Command = Commands(name=COMMAND)
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-") and not rest[0].isupper():
        context = click.Context(command)
        found = command.get_command(context, rest[0])
        if found is None:
            return f"no command {rest[0]!r} in {' '.join(words)!r}"
        command, rest = found, rest[1:]
    if isinstance(command, click.Group):
        return ""
    # What stands behind a script is the script's own.
    of_script = bool(command.context_settings.get("ignore_unknown_options"))
    context = click.Context(command, allow_interspersed_args=not of_script)
    try:
        command.make_parser(context).parse_args([word for word in rest if word != "--help"])
    except click.NoSuchOption as error:
        return f"{' '.join(words)!r}: {error.format_message()}"
    except click.BadOptionUsage:
        pass  # prose names an option without its value; a block that runs shows it
    return ""


def words_fault(words: list[str]) -> str:
    """What is wrong with one simple command of a shell line."""
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words = words[1:]
    if not words:
        return ""
    name = Path(words[0]).name
    if name.startswith("python") and words[1:3] == ["-m", "pip"]:
        name, words = "pip", words[2:]
    if COMMAND in words and (name == COMMAND or words[words.index(COMMAND) - 1] == "-m"):
        return command_fault(words[words.index(COMMAND) :])
    if name == "make":
        unknown = [word for word in words[1:] if "=" not in word and word not in TARGETS]
        return f"make has no target {unknown[0]!r}" if unknown else ""
    if name == "pip":
        unknown = [extra for word in words for extra in _extras(word) if extra not in EXTRAS]
        return f"no extra {unknown[0]!r}" if unknown else ""
    if name.startswith("python") and len(words) > 1 and words[1].startswith(("benchmarks/", "zoo/", "examples/")):
        return "" if (ROOT / words[1]).is_file() else f"no file {words[1]}"
    return ""


def shell_faults(line: str) -> Iterator[str]:
    """What is wrong with each simple command of a shell line."""
    try:
        tokens = list(_lexer(line))
    except ValueError as error:
        yield f"{line!r}: {error}"
        return
    words: list[str] = []
    for token in [*tokens, ";"]:
        if set(token) <= set(";|&()"):
            if found := words_fault(words):
                yield found
            words = []
        else:
            words.append(token)


def _lexer(line: str) -> shlex.shlex:
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    return lexer


def _extras(word: str) -> list[str]:
    found = re.fullmatch(r"(?:\.|steadytrain)\[([\w,-]+)\].*", word)
    return found[1].split(",") if found else []


def _console(block: Block) -> str:
    commands = block.commands()
    if not commands:
        return "a console block without a line that begins with '$ '"
    return next((found for command in commands for found in shell_faults(command.text)), "")


def _bash(block: Block) -> str:
    lines = block.text.replace("\\\n", " ").splitlines()
    return next((found for line in lines if not line.startswith("#") for found in shell_faults(line)), "")


def _python(block: Block) -> str:
    try:
        ast.parse(block.text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    return ""


def _text(block: Block) -> str:
    return "" if not block.runs else "a text block must say `not run: REASON`"


def _toml(block: Block) -> str:
    try:
        tomllib.loads(block.text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    return _accepted(block, TOML_KINDS)


def _yaml(block: Block) -> str:
    try:
        yaml.safe_load(block.text)
    except yaml.YAMLError as error:
        return str(error)
    faults = (found for step in steps_of(block) for found in shell_faults(step))
    return next(faults, "") or _accepted(block, YAML_KINDS)


def _json(block: Block) -> str:
    try:
        json.loads(block.text)
    except ValueError as error:
        return str(error)
    return ""


def _accepted(block: Block, kinds: Mapping[str, Callable[[Block], str]]) -> str:
    kind = block.directives.get("as", "")
    return kinds[kind](block) if kind in kinds else f"say `as: KIND`, one of {', '.join(kinds)}"


def _read_by(reader: str) -> Callable[[Block], str]:
    def accepted(block: Block) -> str:
        from steadytrain.gate.policy import read_policy as gate_policy
        from steadytrain.guard.policy_files import read_policy as guard_policy

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "policy.toml")
            path.write_text(block.text, encoding="utf-8")
            try:
                {"gate": gate_policy, "guard": guard_policy}[reader](path)
            except UsageError as error:
                return str(error)
        return ""

    return accepted


def _entry_points(block: Block) -> str:
    from steadytrain.cli._catalogues import catalogues

    groups = tomllib.loads(block.text)["project"]["entry-points"]
    known = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert catalogues()
    return next((f"no group {group}" for group in groups if f"`{group}`" not in known), "")


def _settings(block: Block) -> str:
    from steadytrain.cli import run
    from steadytrain.cli._settings import name_of, options_of

    table = tomllib.loads(block.text)["tool"]["steadytrain"]["run"]
    known = [name_of(option) for option in options_of(run.command)]
    return next((f"no option {name}" for name in table if name not in known), "")


def steps_of(block: Block) -> list[str]:
    """The shell lines of a CI file: ``run:`` of GitHub Actions, ``script:`` of GitLab."""

    def walk(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("run", "script"):
                    yield from [inner] if isinstance(inner, str) else inner
                else:
                    yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    return [line for step in walk(yaml.safe_load(block.text)) for line in step.splitlines() if line.strip()]


TOML_KINDS: Mapping[str, Callable[[Block], str]] = {
    "gate-policy": _read_by("gate"),
    "guard-policy": _read_by("guard"),
    "entry-points": _entry_points,
    "settings": _settings,
}
YAML_KINDS: Mapping[str, Callable[[Block], str]] = {
    "steps": lambda block: "" if steps_of(block) else "no `run:` or `script:` in it",
}
CHECKS: Mapping[str, Callable[[Block], str]] = {
    "console": _console,
    "bash": _bash,
    "python": _python,
    "toml": _toml,
    "yaml": _yaml,
    "json": _json,
    "text": _text,
    "mermaid": lambda block: "",
}
