"""What check-data costs: memory and rows a second over a gigabyte of JSON Lines, beside the tokenizer by itself.

The text is made: words of random syllables, as frequent as words are (Zipf), in rows of 50 to 600 words. The tokenizer
is a byte-level BPE of 16,384 tokens, trained on the beginning of it. Each measurement is a process of its own, so that
its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SEED = 0
WORDS = 50_000
TRAINED_ON_ROWS = 5_000
VOCABULARY = 16_384
SYLLABLES = [a + b for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "it", "on", "us")]

_CHECK = """
import json, resource, sys, time
from steadytrain.checks.data import Wanted, look_at
from steadytrain.checks.data.data_check import Circumstances
from steadytrain.checks.data.tokenizing import tokenizer_at
began = time.perf_counter()
tokenizer = tokenizer_at(sys.argv[2]) if sys.argv[2] else None
known = Circumstances(tokenizer, tokenizer.size if tokenizer else None, 1024)
report = look_at(Wanted(sys.argv[1]), known)
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak_mib": peak, "rows": report.rows, "tokens": report.tokens}))
"""

_TOKENIZE = """
import json, resource, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[2])
began, rows, tokens, held, size = time.perf_counter(), 0, 0, [], 0
def take():
    global tokens
    tokens += sum(len(entry) for entry in tokenizer.encode_batch_fast(held))
for line in open(sys.argv[1], encoding="utf-8"):
    held.append(json.loads(line)["text"])
    rows, size = rows + 1, size + len(held[-1])
    if size > 1 << 20:
        take()
        held, size = [], 0
take()
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak_mib": peak, "rows": rows, "tokens": tokens}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, tokenizer = Path(folder) / "data.jsonl", Path(folder) / "tokenizer.json"
        make_rows(data, arguments.megabytes * 1_000_000)
        train_tokenizer(data, tokenizer)
        size = data.stat().st_size
        print(f"{time.strftime('%Y-%m-%d')}, {platform.processor() or platform.machine()}, {size / 1e9:.2f} GB\n")
        print(f"{'':30} {'seconds':>8} {'MB/s':>7} {'rows/s':>8} {'peak MiB':>9}")
        for title, program, given in (
            ("the tokenizer by itself", _TOKENIZE, str(tokenizer)),
            ("check-data --tokenizer", _CHECK, str(tokenizer)),
            ("check-data, no tokenizer", _CHECK, ""),
        ):
            seen = measure(program, str(data), given)
            seconds, rows = seen["seconds"], seen["rows"]
            speed = f"{size / 1e6 / seconds:7.1f} {rows / seconds:8,.0f}"
            print(f"{title:30} {seconds:8.1f} {speed} {seen['peak_mib']:9,.0f}", flush=True)


def measure(program: str, *arguments: str) -> dict[str, float]:
    ran = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(ran.stdout)
    return measured


def make_rows(path: Path, size_bytes: int) -> None:
    rng = np.random.default_rng(SEED)
    words = np.array(["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(WORDS)])
    shares = 1.0 / np.arange(1, WORDS + 1)
    shares /= shares.sum()
    written = number = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size_bytes:
            for length in rng.integers(50, 600, 256):
                text = " ".join(words[rng.choice(WORDS, length, p=shares)])
                written += file.write(json.dumps({"id": number, "text": text}) + "\n")
                number += 1


def train_tokenizer(data: Path, path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    with data.open(encoding="utf-8") as file:
        texts = [json.loads(next(file))["text"] for _ in range(TRAINED_ON_ROWS)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


if __name__ == "__main__":
    main()
