"""Which programs a launched script may start: none that submit jobs or upload, and without Landlock only readers."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any


def names_in(text: str) -> frozenset[str]:
    return frozenset(text.split())


JOBS = names_in(
    """
    sbatch srun salloc scancel scontrol qsub qdel qrsh bsub bkill condor_submit flux sky modal ray kubectl helm
    oc docker podman nerdctl apptainer singularity argo dsub runpodctl vastai aws gcloud gsutil az s3cmd s5cmd
    azcopy mc rclone rsync scp sftp ssh ftp wandb mlflow neptune comet clearml-task clearml-data dvc
    huggingface-cli hf twine crontab at batch systemctl service mail mailx sendmail mutt git-lfs kill pkill
    killall shutdown reboot
    """
)
"""Programs that submit jobs, upload, or act on what other processes and machines hold."""

MODES = names_in(
    """
    chmod chown chgrp touch setfacl setfattr chattr
    """
)
"""Programs that change modes, owners and times of files, which Landlock does not forbid."""

TRANSFERS = names_in(
    """
    curl wget http https nc ncat telnet
    """
)
"""Allowed with a network."""

GIT_READS = names_in(
    """
    rev-parse rev-list status log show diff describe ls-files ls-tree branch remote config cat-file name-rev
    --version version for-each-ref symbolic-ref merge-base shortlog blame
    """
)
READERS = names_in(
    """
    nvidia-smi rocm-smi uname lscpu lspci lsblk ldconfig hostname whoami id date cat head tail wc ls stat file
    grep egrep fgrep which df du free ps nproc getconf sysctl sw_vers sleep true false echo printf test expr
    basename dirname realpath readlink sort uniq cut tr md5sum sha256sum env printenv gcc g++ cc c++ clang
    clang++ ld as ar nvcc ptxas cuobjdump nvdisasm cudafe++ cicc fatbinary ninja cmake x86_64-linux-gnu-gcc
    x86_64-linux-gnu-g++
    """
)
"""Programs that read, and compilers. Only these start where the kernel cannot forbid writing."""

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
WRAPPERS = frozenset(("env", "nohup", "setsid", "nice", "ionice", "timeout", "time", "sudo", "xargs", "exec", "stdbuf"))
SEPARATORS = re.compile(r"&&|\|\||[;|&\n]")
ASSIGNMENT = re.compile(r"\w+=")
DEEP_MAX = 4
ISOLATING = re.compile(r"-[a-zA-Z]*[IES]")
"""Python's flags that ignore the environment or the start hook."""

NETWORK_VARIABLE = "STEADYTRAIN_ALLOW_NETWORK"
"""Set by ``--allow-network``: the launched script may connect to other hosts. Trackers stay offline."""

SANDBOX_VARIABLE = "STEADYTRAIN_SANDBOX"
"""Tells a Python process that a launched script starts where the sandbox is."""

JOB = "{} is not started by a relaunched script: it acts outside of this process (steadytrain)"
WRITER = "{} is not started by a relaunched script: on this kernel without Landlock it could write files (steadytrain)"


def refusal(words: Any, environment: Any, *, can_write: bool) -> str | None:
    """Why the program is not started; None if it may start.

    Args:
        words: the program and its arguments, as text, bytes or paths.
        environment: its variables; None for those of this process.
        can_write: nothing but this rule keeps the program from writing.
    """
    texts = [os.fsdecode(one) for one in ([words] if isinstance(words, str | bytes | os.PathLike) else words or ())]
    for command in _commands(texts):
        name = os.path.basename(command[0])
        if _acts_outside(name, command):
            return JOB.format(name)
        if can_write and not _only_reads(name, command, environment):
            return WRITER.format(name)
    if can_write and _redirects(texts):
        return WRITER.format(os.path.basename(texts[0]))
    return None


def _acts_outside(name: str, command: list[str]) -> bool:
    if name in JOBS or name in MODES:
        return True
    if name == "git":
        return _subcommand(command[1:]) not in GIT_READS
    return name in TRANSFERS and not os.environ.get(NETWORK_VARIABLE)


def _only_reads(name: str, command: list[str], environment: Any) -> bool:
    if name in READERS or name == "git" or name in SHELLS:
        return True
    if os.path.realpath(command[0]) != os.path.realpath(sys.executable):
        return False
    flags = [word for word in command[1:] if word.startswith("-")]
    kept = environment is None or SANDBOX_VARIABLE in _names(environment)
    return kept and not any(ISOLATING.match(flag) for flag in flags)


def _names(environment: Any) -> Iterable[str]:
    names = environment if isinstance(environment, Mapping) else ()
    return [os.fsdecode(name) for name in names]


def _commands(words: list[str], depth: int = 0) -> list[list[str]]:
    """The commands in a command line: those after wrappers (``nohup``) and those in the text of a shell."""
    while words and (os.path.basename(words[0]) in WRAPPERS or ASSIGNMENT.match(words[0]) or _is_option(words)):
        words = words[1:]
    if not words or depth > DEEP_MAX:
        return []
    found = [words]
    if os.path.basename(words[0]) in SHELLS:
        for text in words[1:]:
            if " " in text or not text.startswith("-"):
                for part in SEPARATORS.split(text):
                    found += _commands(_split(part), depth + 1)
    return found


def _is_option(words: list[str]) -> bool:
    """What stands between a wrapper and its program: an option or a number (``timeout 5``)."""
    return words[0].startswith("-") or words[0].isdigit()


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _subcommand(words: list[str]) -> str:
    skip = False
    for word in words:
        if skip or word in ("-C", "-c"):
            skip = not skip
        elif not word.startswith("-") or word == "--version":
            return word
    return "--version"


def _redirects(words: list[str]) -> bool:
    """Whether the text of a shell writes or runs what this rule does not read."""
    if os.path.basename(words[0] if words else "") not in SHELLS:
        return False
    text = " ".join(words[1:])
    text = re.sub(r"\d?>{1,2}\s*(/dev/null|&\d)", "", text)
    return any(mark in text for mark in (">", "$(", "`"))
