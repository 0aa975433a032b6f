"""Take secrets out of what is written: arguments, environment variables, configuration, diffs, addresses.

Redaction happens before anything reaches the disk, so a bundle can be handed to a stranger. It knows names that
mean a secret and the shapes of common tokens; a secret under an innocent name in free text is beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?<![a-z])(api[-_]?key|access[-_]?key|secret|token(?!iz|s?[-_]?(per|max|count|len|num|id|dir|path|file|type))|"
    r"passw(or)?d|passwd|pwd|credentials?|auth|bearer|private[-_]?key|wandb[-_]?key|cookie|session[-_]?id|key)s?$",
    re.IGNORECASE,
)
_INNOCENT_NAME = re.compile(
    r"(max|num|n|min|pad|eos|bos|unk|sep|cls|mask|new|per|total|special|block)[-_]?tokens?$", re.I
)
_SECRET_SHAPES = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|"
    r"glpat-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|xox[baprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,})"
)
_ADDRESS_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s:@]+(:[^/\s@]*)?@", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"""(?P<head>['"]?(?P<name>[A-Za-z_][A-Za-z0-9_-]*)['"]?\s*[:=]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s,;)}\]]+)"""
)

ENVIRONMENT_KEPT = re.compile(
    r"^(CUDA_|CUBLAS_|CUDNN_|NCCL_|TORCH|PYTORCH_|OMP_|MKL_|KMP_|GLOO_|TRITON_|XLA_|ROCM|HIP_|HSA_|ACCELERATE_|"
    r"DEEPSPEED_|FSDP_|HF_HUB_OFFLINE$|TOKENIZERS_PARALLELISM$|TRANSFORMERS_OFFLINE$|PYTHONHASHSEED$|RANK$|"
    r"LOCAL_RANK$|WORLD_SIZE$|LOCAL_WORLD_SIZE$|NODE_RANK$|GROUP_RANK$|SLURM_(JOB_ID|NNODES|NTASKS|PROCID)$)"
)
"""Environment variables that a bundle keeps: those that change numerics, kernels or the layout of the run."""


def redact_text(text: str) -> str:
    """Replace token-shaped words, logins in addresses and ``secret_name = value`` assignments in ``text``."""
    text = _SECRET_SHAPES.sub(REDACTED, text)
    text = _ADDRESS_LOGIN.sub(rf"\1{REDACTED}@", text)
    return _ASSIGNMENT.sub(_redact_assignment, text)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Replace the values of secret-looking options (``--api-key X``, ``--token=X``, ``wandb_key=X``)."""
    kept: list[str] = []
    hide_next = False
    for argument in arguments:
        if hide_next and not argument.startswith("-"):
            kept.append(REDACTED)
            hide_next = False
            continue
        name, separator, _ = argument.partition("=")
        if is_secret_name(name.lstrip("-")):
            hide_next = not separator and argument.startswith("-")
            kept.append(f"{name}={REDACTED}" if separator else argument)
        else:
            hide_next = False
            kept.append(redact_text(argument))
    return kept


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables worth keeping (``ENVIRONMENT_KEPT``), with secrets replaced."""
    return {
        name: REDACTED if is_secret_name(name) else redact_text(value)
        for name, value in sorted(environment.items())
        if ENVIRONMENT_KEPT.match(name)
    }


def redact_tree(value: Any, *, name: str = "") -> Any:
    """A JSON-like value with secret-named entries and token-shaped strings replaced, at any depth."""
    if isinstance(value, Mapping):
        return {key: redact_tree(entry, name=str(key)) for key, entry in value.items()}
    if name and is_secret_name(name) and isinstance(value, str) and value:
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, (list, tuple)):
        return [redact_tree(entry, name=name) for entry in value]
    return value


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _INNOCENT_NAME.search(name)


def _redact_assignment(match: re.Match[str]) -> str:
    if is_secret_name(match["name"]) and match["value"] not in ("None", "''", '""'):
        return match["head"] + REDACTED
    return match[0]
