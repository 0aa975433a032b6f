"""``steadytrain completion``: a shell's completion of commands, options, runs, incidents and names."""

from __future__ import annotations

import click

from steadytrain.cli._output import say

PROGRAM = "steadytrain"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion for a shell: commands, options, runs, incidents, levels, policies and names.

    Add the line of your shell to its start file:

    \b
    bash   source <(steadytrain completion bash)                     # ~/.bashrc
    zsh    source <(steadytrain completion zsh)                      # ~/.zshrc, after compinit
    fish   steadytrain completion fish | source                      # ~/.config/fish/config.fish

    A <Tab> reads the folder of runs, imports no PyTorch and writes nothing. With --runs-dir DIR before it, the runs of
    DIR are offered.
    """
    from click.shell_completion import get_completion_class

    from steadytrain.cli.main import COMPLETION_VARIABLE, commands

    found = get_completion_class(shell)
    assert found is not None
    say(found(commands, {}, PROGRAM, COMPLETION_VARIABLE).source())
