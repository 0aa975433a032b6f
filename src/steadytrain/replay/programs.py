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
GIT_NAMES_MAX = {"branch": 0, "config": 1, "remote": 0, "symbolic-ref": 1}
"""Of these subcommands, the names that one may give without writing; with an option or word that asks, more."""

GIT_READING_OPTION = "--get|--list|-l$|--contains|--merged|--no-merged|--points-at"
GIT_READING_WORDS = (["get"], ["list"], ["show"], ["get-url"])
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

SHARED_MEMORY = "/dev/shm/"
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
WRAPPERS = frozenset(("env", "nohup", "setsid", "nice", "ionice", "timeout", "time", "sudo", "xargs", "exec", "stdbuf"))
SEPARATORS = re.compile(r"&&|\|\||[;|&\n]")
ASSIGNMENT = re.compile(r"\w+=")
DEEP_MAX = 4
ISOLATING = re.compile(r"-[a-zA-Z]*[IES]")
"""Python's flags that ignore the environment or the start hook."""

SOCKET_FILE = re.compile("/dev/(tcp|udp)/")
"""What bash opens as a connection."""

NETWORK_VARIABLE = "STEADYTRAIN_ALLOW_NETWORK"
"""Set by ``--allow-network``: the launched script may connect to other hosts. Trackers stay offline."""

SANDBOX_VARIABLE = "STEADYTRAIN_SANDBOX"
"""Tells a Python process that a launched script starts where the sandbox is."""

JOB = "{} is not started by a relaunched script: it acts outside of this process (steadytrain)"
SHARED = "{} is not started by a relaunched script: it could write to shared memory (steadytrain)"
WRITER = "{} is not started by a relaunched script: on this kernel without Landlock it could write files (steadytrain)"


def refusal(words: Any, environment: Any, *, can_write: bool, own: tuple[str, ...] = ()) -> str | None:
    """Why the program is not started; None if it may start.

    Args:
        words: the program and its arguments, as text, bytes or paths.
        environment: its variables; None for those of this process.
        can_write: nothing but this rule keeps the program from writing.
        own: folders that the program may write, each with a separator at its end.
    """
    texts = [os.fsdecode(one) for one in ([words] if isinstance(words, str | bytes | os.PathLike) else words or ())]
    for command in _commands(texts):
        name = os.path.basename(command[0])
        if _acts_outside(name, command):
            return JOB.format(name)
        if can_write and not _only_reads(name, command, environment):
            return WRITER.format(name)
        if _names_shared(texts, own) and (_redirects(texts) or not _only_reads(name, command, environment)):
            return SHARED.format(name)
    if can_write and _redirects(texts):
        return WRITER.format(os.path.basename(texts[0]))
    return None


def _names_shared(words: list[str], own: tuple[str, ...]) -> bool:
    """Whether the words name a file in shared memory. The kernel's rule leaves it open: loader workers need it."""
    own = tuple(folder for folder in own if folder.startswith(SHARED_MEMORY))
    places = [word[at.start() :] for word in words for at in re.finditer(SHARED_MEMORY, word)]
    return any(not place.startswith(own) for place in places)


def _acts_outside(name: str, command: list[str]) -> bool:
    if name in JOBS or name in MODES:
        return True
    if name == "git":
        return _subcommand(command[1:]) not in GIT_READS
    if os.environ.get(NETWORK_VARIABLE):
        return False
    isolated = name.startswith("python") and any(ISOLATING.match(word) for word in command[1:2])
    return name in TRANSFERS or isolated or any(SOCKET_FILE.search(word) for word in command)


def _only_reads(name: str, command: list[str], environment: Any) -> bool:
    if name in READERS or name == "git" or name in SHELLS:
        return not _writes_result(name, command[1:])
    if os.path.realpath(command[0]) != os.path.realpath(sys.executable):
        return False
    flags = [word for word in command[1:] if word.startswith("-")]
    kept = environment is None or SANDBOX_VARIABLE in _names(environment)
    return kept and not any(ISOLATING.match(flag) for flag in flags)


def _writes_result(name: str, words: list[str]) -> bool:
    """Whether a program that mostly reads gets a file to write."""
    values = [word for word in words if not word.startswith("-")]
    if name == "uniq":
        return len(values) > 1
    if name == "sort":
        return any(re.match(r"-[a-zA-Z]*o|--o", word) for word in words)
    if name != "git":
        return False
    subcommand = _subcommand(words)
    values = values[values.index(subcommand) + 1 :] if subcommand in values else []
    read = any(re.match(GIT_READING_OPTION, word) for word in words) or values[:1] in GIT_READING_WORDS
    settles = len(values) > GIT_NAMES_MAX.get(subcommand, len(values)) and not read
    return settles or any(word.startswith("--output") for word in words)


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
