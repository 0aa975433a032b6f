"""The redaction, against secrets and innocent text."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadytrain.storage.redaction import (
    REDACTED,
    is_secret_name,
    redact_arguments,
    redact_environment,
    redact_text,
    redact_tree,
)

# Redaction.

INNOCENT_TEXTS = [
    "max_tokens=512",
    "tokenizer_path=gpt2",
    "--max-tokens 512 --num_tokens 9",
    'eos_token="</s>"',
    "key = self.key(x)",
    "sorted(names, key=len)",
    "query, key, value = projected.chunk(3, dim=-1)",
    'text_key="content"',
    'if token == "a":',
    "for token in tokens:",
    "token=None",
    "author: Bob",
    "git clone git@github.com:someone/project.git",
    "https://example.org/a?page=2",
    "disk-0123456789abcdef0123",
]
SECRET = "Zq8vT2mK7w"
SECRET_TEXTS = [
    f"--api-key {SECRET}",
    f"--token={SECRET} --lr 1",
    f"HF_TOKEN={SECRET}",
    f'token: str = "{SECRET}"',
    f'api_key: Optional[str] = "{SECRET}"',
    f'os.environ["WANDB_API_KEY"] = "{SECRET}"',
    f'os.environ.setdefault("HF_TOKEN", "{SECRET}")',
    f'wandb.login(key="{SECRET}")',
    f"cfg: token={SECRET}",
    f'{{"cfg": {{"hfToken": "{SECRET}"}}}}',
    f'password = "a \\" {SECRET}"',
    f"password='it is \" {SECRET}'",
    f"['--api-key', '{SECRET}']",
    f"https://user:{SECRET}@example.org/x",
    f"https://user:p@{SECRET}@example.org/x",
    f"redis://:{SECRET}@example.org:6379",
    f"https://{SECRET}@example.org",
    f"s3://bucket/file?X-Amz-Signature={SECRET}",
    f"Authorization: Bearer {SECRET}",
    f'{{"Authorization": "Basic {SECRET}"}}',
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"hf_{SECRET}{SECRET}",
    f"sk-{SECRET}{SECRET}",
    f"ghp_{SECRET}{SECRET}",
]


@pytest.mark.parametrize("text", INNOCENT_TEXTS)
def test_innocent_text_is_left_alone(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_a_secret_in_text_is_taken_out(text: str) -> None:
    redacted = redact_text(text)
    assert SECRET not in redacted
    assert REDACTED in redacted
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokenizer_path", "tokens", "eos_token", "sort_key", "author", "keyboard"]
)
def test_innocent_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["api-key", "token", "HF_TOKEN", "authToken", "db_password", "client_secret", "logger.wandb.api_key", "pwd"]
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


def test_arguments_lose_the_values_of_secret_options() -> None:
    arguments = ["t.py", "--api-key", "X", "--token=Y", "wandb_key=Z", "--use-auth-token", "--max_tokens", "5"]
    assert redact_arguments(arguments) == [
        *("t.py", "--api-key", REDACTED, f"--token={REDACTED}", f"wandb_key={REDACTED}"),
        *("--use-auth-token", "--max_tokens", "5"),
    ]


def test_a_tree_is_redacted_at_any_depth() -> None:
    tree = {"a": [{"password": SECRET, "lr": 1e-3}], "api_keys": [SECRET], "note": f"token={SECRET}", "max_tokens": 5}
    redacted = redact_tree(tree)
    assert SECRET not in json.dumps(redacted)
    assert redacted["max_tokens"] == 5
    assert redacted["a"][0]["lr"] == 1e-3


def test_the_environment_keeps_only_what_changes_the_numbers() -> None:
    kept = redact_environment({"OMP_NUM_THREADS": "2", "AWS_SECRET": SECRET, "TORCH_TOKEN": SECRET, "HOME": "/root"})
    assert kept == {"OMP_NUM_THREADS": "2", "TORCH_TOKEN": REDACTED}
    paths = redact_environment({"PYTHONPATH": f"/src:/token={SECRET}"})["PYTHONPATH"]
    assert paths.startswith("/src:")
    assert SECRET not in paths


@settings(max_examples=200)
@given(st.text(alphabet="ab=:\"'@/.-_ \\[]{}\nkeytoken", max_size=60))
def test_redaction_is_done_once_and_for_all(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "piece", ["a", "a.", "a:", "a-", "token=", 'token="', "eyJ", "eyJ-", "://", "--token ", " ", "PRIVATE "]
)
def test_redaction_of_a_hostile_megabyte_is_quick(piece: str) -> None:
    started = time.thread_time()  # seconds of this thread on a processor, whatever else runs
    redact_text(piece * (300_000 // len(piece)))
    # A few tenths of a second; anything quadratic takes minutes.
    assert time.thread_time() - started < 5
