"""Remove secrets from what is written: arguments, environment variables, configuration, diffs, addresses.

Redaction happens before anything reaches the disk, so a bundle can be shared. It recognizes names that suggest a secret
and the shapes of common tokens. It cannot recognize a secret under an innocent name in free text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?<![a-z])(api[-_]?key|access[-_]?key|secret([-_]?key)?|token|passw(or)?d|passwd|passphrase|pwd|credential|"
    r"o?auth(ori[sz]ation)?|bearer|private[-_]?key|wandb[-_]?key|cookie|session[-_]?id|amz[-_]signature|key)s?$",
    re.IGNORECASE,
)
_INNOCENT_NAME = re.compile(
    r"(?<![a-z])((max|num|n|nr|min|pad|padding|eos|bos|unk|unknown|sep|separator|cls|mask|new|per|total|special|block|"
    r"added|image|video|audio|start|end|stop|prefix|suffix|middle|response|instruction|user|assistant|seen|train|"
    r"training|eval|input|output|prompt|completion|prediction|target|label|register|valid|warmup|global|local)"
    r"[-_]?tokens?|"
    r"tokens|"
    r"(sort|primary|group|metric|label|text|input|output|image|audio|video|data|dataset|column|prompt|completion|"
    r"response|target|source|feature|features|batch|loss|query|head|heads|num|n|id|main|monitor|score|name|state|"
    r"config)[-_]?keys?)$",
    re.IGNORECASE,
)
"""Names in which ``token`` means a piece of text and ``key`` means a column."""
_SECRET_SHAPES = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|"
    r"glpat-[A-Za-z0-9_-]{16,}|A[KS]IA[0-9A-Z]{16}|xox[baprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|"
    r"npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|nvapi-[A-Za-z0-9_-]{20,}|"
    r"eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,})|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_AUTHORIZATION = re.compile(
    r"(\bauthorization['\"]?\s{0,9}[:=,]\s{0,9}['\"]?|\bbearer\s{1,9})([A-Za-z]{1,20}\s{1,9})?[^\s'\",]{8,}",
    re.IGNORECASE,
)
_ADDRESS_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s'\"]{0,1000}@", re.IGNORECASE)

# The text may be a diff of a megabyte, so every repetition below is bounded, or starts and ends at a word.
_NAME = r"(?P<quote>['\"]?)(?<![A-Za-z0-9_-])-{0,2}(?P<name>[A-Za-z_][A-Za-z0-9_-]{0,99})(?P=quote)"
_GIVEN = (
    # name = value, name: value, "name": value, name: str | None = value, os.environ["NAME"] = value
    re.compile(rf"{_NAME}\]?\s{{0,99}}(?::\s{{0,9}}[A-Za-z_][\w.\[\]| ]{{0,99}}=|:?=(?!=)|:)\s{{0,99}}"),
    re.compile(
        r"""(?P<quote>['"])-{0,2}(?P<name>[A-Za-z_][\w-]{0,99})(?P=quote)\s{0,99},\s{0,99}(?=[rbfuRBFU]{0,2}['"])"""
    ),
    re.compile(r"(?<![\w-])--?(?P<name>[A-Za-z][\w-]{0,99})\s{1,9}(?!-)"),
)
_VALUE = re.compile(
    r"""[rbfuRBFU]{0,2}(?P<mark>["'])(?:\\.|(?!(?P=mark))[^\\\n])*(?P=mark)|[^\s,;)}\]]+""",
)
_PLAIN_VALUES = ("None", "''", '""', "True", "False", "null", "true", "false")
_CODE_KEY_CHARACTERS_MIN = 20

ENVIRONMENT_KEPT = re.compile(
    r"^(CUDA_|CUBLAS_|CUDNN_|NCCL_|TORCH|PYTORCH_|OMP_|MKL_|KMP_|GLOO_|TRITON_|XLA_|ROCM|HIP_|HSA_|ACCELERATE_|"
    r"DEEPSPEED_|FSDP_|HF_HUB_OFFLINE$|TOKENIZERS_PARALLELISM$|TRANSFORMERS_OFFLINE$|PYTHONHASHSEED$|PYTHONPATH$|RANK$|"
    r"LOCAL_RANK$|WORLD_SIZE$|LOCAL_WORLD_SIZE$|NODE_RANK$|GROUP_RANK$|SLURM_(JOB_ID|NNODES|NTASKS|PROCID)$)"
)
"""Environment variables that a bundle keeps: those that affect numerics, kernels, the distributed layout,
or which modules a second launch finds."""


def redact_text(text: str) -> str:
    """Replace token-shaped words, logins in addresses, and values of secret names in ``text``."""
    text = _SECRET_SHAPES.sub(REDACTED, text)
    text = _AUTHORIZATION.sub(rf"\1{REDACTED}", text)
    text = _ADDRESS_LOGIN.sub(rf"\1{REDACTED}@", text)
    for given in _GIVEN:
        text = _redact_values(text, given)
    return text


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
    """The variables matched by ``ENVIRONMENT_KEPT``, with secrets replaced."""
    return {
        name: REDACTED if is_secret_name(name) else redact_text(value)
        for name, value in sorted(environment.items())
        if ENVIRONMENT_KEPT.match(name) and (value or name != "PYTHONPATH")
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
    """Whether a value under ``name`` is likely a secret; ``hfToken`` reads as ``hf_Token``."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return bool(_SECRET_NAME.search(name)) and not _INNOCENT_NAME.search(name)


def _redact_values(text: str, given: re.Pattern[str]) -> str:
    """Replace the values of secret names. An innocent name is skipped without its value: ``cfg: token=x`` has two
    names.
    """
    kept, position, start = [], 0, 0
    while head := given.search(text, start):
        value = _VALUE.match(text, head.end()) if is_secret_name(head["name"]) else None
        if value is None or not _is_secret_value(head["name"], value):
            start = head.end("name")
            continue
        mark = value["mark"] or ""
        kept += [text[position : head.end()], mark, REDACTED, mark]
        position = start = value.end()
    return "".join([*kept, text[position:]])


def _is_secret_value(name: str, value: re.Match[str]) -> bool:
    text = value[0]
    if text in _PLAIN_VALUES or text.startswith(REDACTED[:-1]):
        return False
    # `key = self.key(x)` occurs in every attention layer; `wandb.login(key="...")` is the secret.
    plain_key = name.lower() in ("key", "keys") and not value["mark"]
    return not plain_key or re.fullmatch(rf"[A-Za-z0-9_-]{{{_CODE_KEY_CHARACTERS_MIN},}}", text) is not None
