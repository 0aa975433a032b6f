"""The redaction, against secrets and innocent text."""

from __future__ import annotations

import json
import random
import re
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadytrain.storage import redaction
from steadytrain.storage.redaction import (
    REDACTED,
    is_secret_name,
    redact_arguments,
    redact_environment,
    redact_text,
    redact_tree,
    redacted,
)
from steadytrain.storage.secret_shapes import SHAPES, Shape

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
    'token = os.environ["HF_TOKEN"]',
    'token=os.getenv("HF_TOKEN")',
    "login(token=args.token)",
    'password = getpass("Password: ")',
    "def f(token: str, key: Tensor, pin: bool = True)",
    "pin_memory=True, forward_pass: 3, n_pass=2, salt = 17",
    "self.pw = nn.Conv2d(64, 64, 1)",
    'statuses = ("pass", "warn", "fail", "not-run")',
    "the next token: shifted by one",
    "earliest[departure.key] = departure",
    "commit 3b5d5c3712955042212316173ccf37be800f4a2c",
    "12ab34cd-12ab-34cd-56ef-1234567890ab",
    "Qwen2VLForConditionalGeneration MobileNetV3SmallWeights_IMAGENET1K_V1 Wav2Vec2BertForSequenceClassification",
    "Llama3/checkpoints/step_000100/model-00001-of-00004.safetensors runs/20261122-103323-qwen2-5-7b-lora-r16-lr1e4",
    "(token): Embedding(3, 4) (key): Linear(in_features=4, out_features=4, bias=True)",
    "sk-learn-based-classifier-with-many-words",
    "if token:\n    step += 1",
    "/etc/passwd: no such run or incident",
    "./passwd: this is a file; name a folder",
    "cat: /etc/passwd: Permission denied",
    "not read: ../config/secret.toml: line 3: not TOML",
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
    f"DB_PASS={SECRET}",
    f"password: correct horse {SECRET}\nlr: 3",
    f'password = """{SECRET}"""',
    f'passwords = ["a1", "{SECRET}"]',
    f'token = ("Ab1" "{SECRET}")',
    f'password = decrypt("{SECRET}")',
    f'token = os.getenv("HF_TOKEN", "{SECRET}")',
    f'{{\\"password\\": \\"{SECRET}\\"}}',
    f"<password>{SECRET}</password>",
    f"Cookie: a=1; b={SECRET}",
    f"machine example.org login me password {SECRET}",
    f"curl -u me:{SECRET} https://example.org",
    f"the password is {SECRET}",
    f"wandb login {SECRET}{SECRET}",
    f"PASSWORD=a,{SECRET})b",
    f"PGPASSWORD={SECRET} psql -h db",
    f"java -Dpassword={SECRET}",
    f"password\t{SECRET}",
    f"passwd -> {SECRET}",
    f'password = \\\n    "{SECRET}"',
    f"db.example.org:5432:base:me:{SECRET}",
    f'<add key="Password" value="{SECRET}"/>',
    f'smtp.login("me", "{SECRET}")',
    f"setenv WANDB_API_KEY {SECRET}",
    f"mot_de_passe={SECRET}",
    f"contrase\u00f1a: {SECRET}",
    f"\u5bc6\u7801\uff1a{SECRET}",
    f"https://example.org/x?token={SECRET}&page=2",
    f"vault/db/password: {SECRET}",
    f"/etc/passwd: {SECRET} is not read",
    f"./passwd: no-{SECRET}",
]


@pytest.mark.parametrize("text", INNOCENT_TEXTS)
def test_innocent_text_is_left_alone(text: str) -> None:
    assert redact_text(text) == text


def test_a_token_of_replicate_needs_no_digits() -> None:
    token = "r8_wQxqgiqouuKoQrrAAmyoGDDFjcyyZgHxKixOa"
    assert redact_text(f"refused: {token}") == "refused: [redacted: replicate-token, 40 characters]"
    name = "r8_a_block_of_layers_with_a_long_name_each_1"
    assert redact_text(name) == name


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


def test_an_option_that_takes_several_loses_all_of_them() -> None:
    words = ["--api-keys", "aB3dE5fG", "horse", "--passphrase", "correct1", "hor5eBattery9", "data/train1.txt", "12345"]
    found = redact_arguments(words)
    assert [word.startswith("[redacted: ") for word in found] == [False, True, True, False, True, True, False, False]
    assert [found[at] for at in (0, 3, 6, 7)] == [words[at] for at in (0, 3, 6, 7)]
    assert redact_arguments(["--token", "aB3dE5fG", "--lr", "aB3dE5fG"])[2:] == ["--lr", "aB3dE5fG"]
    assert redact_arguments(["--pass", "aB3dE5fG", "train", "8"])[2:] == ["train", "8"]


def test_variables_that_grant_something_lose_their_values() -> None:
    given = {"PYTORCH_ACCESS": "q1w2e3r4", "TORCH_AUTH_HUB": "q1w2e3r4", "TORCH_HOME": "/home/me", "NCCL_ALGO": "Ring"}
    assert redact_environment(given) == {
        **dict.fromkeys(("PYTORCH_ACCESS", "TORCH_AUTH_HUB"), "[redacted: secret, 8 characters]"),
        **{name: given[name] for name in ("TORCH_HOME", "NCCL_ALGO")},
    }


def test_what_is_redacted_already_stays_so_where_a_line_was_cut() -> None:
    cut = "--passphrase '[redacted: passphrase,\n13 characters]' --lr 1"
    assert redact_text(cut) == cut


def test_arguments_lose_the_values_of_secret_options() -> None:
    arguments = ["t.py", "--api-key", "X", "--token=Y", "wandb_key=Z", "--use-auth-token", "--max_tokens", "5"]
    assert redact_arguments(arguments) == [
        *("t.py", "--api-key", redacted("api-key", "X"), f"--token={redacted('token', 'Y')}"),
        f"wandb_key={redacted('key', 'Z')}",
        *("--use-auth-token", "--max_tokens", "5"),
    ]


def test_a_tree_is_redacted_at_any_depth() -> None:
    tree = {"a": [{"password": SECRET, "lr": 1e-3}], "api_keys": [SECRET], "note": f"token={SECRET}", "max_tokens": 5}
    redacted = redact_tree(tree)
    assert SECRET not in json.dumps(redacted)
    assert redacted["max_tokens"] == 5
    assert redacted["a"][0]["lr"] == 1e-3


def test_numbers_and_pairs_under_the_name_of_a_secret_are_taken_out() -> None:
    assert redact_tree({"pin": 482199, "salt": 3, "seed": 482199}) == {
        "pin": redacted("pin", "482199"),
        "salt": 3,
        "seed": 482199,
    }
    tree = {"dict": [["password", {"value": SECRET}], ["mode", {"value": "train"}]]}
    assert redact_tree(tree)["dict"][1] == ["mode", {"value": "train"}]
    pairs = [
        tree,
        {"name": "DB_PASS", "value": SECRET},
        ["run.py", "--api-key", SECRET],
        {"credentials": {"a": [SECRET]}},
    ]
    assert SECRET not in json.dumps(redact_tree(pairs))


def test_what_was_taken_out_keeps_its_kind_and_length() -> None:
    assert redact_text(f"x = ghp_{SECRET}{SECRET}") == "x = [redacted: github-token, 24 characters]"
    assert redact_text(f'token = "ghp_{SECRET}{SECRET}"') == 'token = "[redacted: github-token, 24 characters]"'
    assert redact_text(f"DB_PASS={SECRET}") == "DB_PASS=[redacted: pass, 10 characters]"


def test_the_environment_keeps_only_what_changes_the_numbers() -> None:
    kept = redact_environment({"OMP_NUM_THREADS": "2", "AWS_SECRET": SECRET, "TORCH_TOKEN": SECRET, "HOME": "/root"})
    assert kept == {"OMP_NUM_THREADS": "2", "TORCH_TOKEN": redacted("token", SECRET)}
    paths = redact_environment({"PYTHONPATH": f"/src:/token={SECRET}"})["PYTHONPATH"]
    assert paths.startswith("/src:")
    assert SECRET not in paths


@settings(max_examples=200)
@given(st.text(alphabet="ab=:\"'@/.-_ \\[]{}\nkeytoken", max_size=60))
def test_redaction_is_done_once_and_for_all(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "piece",
    ["a", "a.", "a:", "a-", "token=", 'token="', "eyJ", "eyJ-", "://", "--token ", " ", "PRIVATE ", "sig=", "cookie: "],
)
def test_redaction_of_a_hostile_megabyte_is_quick(piece: str) -> None:
    started = time.thread_time()  # seconds of this thread on a processor, whatever else runs
    redact_text(piece * (300_000 // len(piece)))
    # Some seconds where each piece is a name to look at; anything quadratic takes many minutes.
    assert time.thread_time() - started < 60


def test_what_is_remembered_holds_no_secret_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "CLEAN_TEXTS_MAX", 3)
    redaction._clean.clear()
    token = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1bC3d"
    for number in range(10):
        plain = f"layers.{number}.weight.of.a.block"
        assert redaction.redact_text(plain) == redaction.redact_text(plain) == plain
        assert token not in redaction.redact_text(f"the token is {token} {number}")
        assert len(redaction._clean) <= 3
    assert not any(token in text for text in redaction._clean)


def test_the_names_of_a_large_model_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    redaction._clean.clear()
    names = [f"blocks.{number}.attention.projection.weight" for number in range(6_000)]
    assert redact_tree(names) == names
    monkeypatch.setattr(redaction, "redact_values", None)
    assert redact_tree(names) == names


def test_the_digests_of_a_tape_are_kept_and_what_stands_under_a_secret_name_is_not() -> None:
    digests = ["float32[64,15]:000000ed8b2cc921cc50e05dd44c4984", "bool[]:0" + "1f" * 15 + "2", "0a" * 16]
    assert redact_tree({"places": {"s1.0": digests}}) == {"places": {"s1.0": digests}}
    assert all(one.startswith(REDACTED) for one in redact_tree({"token": digests})["token"])


@pytest.mark.parametrize("word", ["x7Kd93bQ", "YGtvQlk7bx62", "pQ7rt2Zw9k"])
def test_a_module_whose_name_is_a_drawn_word_is_redacted_where_it_is_printed(word: str) -> None:
    assert word not in redact_text(f"Net(\n  (part17): credential: {word}()\n)")


@pytest.mark.parametrize("word", ["BatchNorm1d", "ResNet50V2", "Linear4bit2", "get_token", "Conv2dBn3"])
def test_a_module_of_a_usual_name_is_not(word: str) -> None:
    assert word in redact_text(f"Net(\n  (token): {word}(8, 4)\n)")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.kind}-{shape.hints[0]}")
def test_the_pattern_of_a_shape_compiles_though_it_is_compiled_late(shape: Shape) -> None:
    assert shape.pattern is shape.pattern
    assert shape.pattern.groups <= 1


def test_two_random_words_stay_two() -> None:
    """As names of layers they would otherwise be one, and its tensors would overwrite each other in a bundle."""
    letters = string.ascii_letters + string.digits
    first, second = ("".join(random.Random(seed).choices(letters, k=28)) for seed in (1, 2))
    names = [redact_text(f"{word}.weight") for word in (first, second, first)]
    assert names[0] == names[2] != names[1]
    assert all(re.fullmatch(r"\[redacted: random-word, 28 characters, #[0-9a-f]{8}\]\.weight", name) for name in names)
    assert redact_text(names[0]) == names[0]
    assert redact_tree({"token": first})["token"] == "[redacted: token, 28 characters]"


def test_a_password_that_sticks_to_its_option() -> None:
    """As ``mysql -uroot -pPASSWORD`` takes it; without a user beside it, ``-pfloat32`` is a setting."""
    assert redact_arguments(["-uroot", "-pS3cr3tWord9"]) == ["-uroot", "-p[redacted: password, 11 characters]"]
    for innocent in (["-pfloat32"], ["-u", "-pretrained"], ["--user", "me", "-p8080"]):
        assert redact_arguments(innocent) == innocent
