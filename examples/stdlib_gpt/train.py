"""Train a small GPT to write the bodies of Python functions.

The text is the standard library of the Python that runs this script. A document is one function: its signature and
docstring are the prompt, its body is the answer, and only the answer is learned. The loss is a mean over the tokens of
each answer and then over the documents, so that long functions do not outweigh short ones. Documents that are longer
than the context have to be cut; they come in the last third of the run.

    python train.py                  # 0.9 M parameters, 120 steps: half a minute on two CPU cores
    python train.py --compile --bf16
"""

from __future__ import annotations

import argparse
import ast
import math
import platform
import random
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

END = "<|end|>"
NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages"}


class Document(NamedTuple):
    """One function as token ids; the first ``prompt`` of them are given, the rest is to be learned."""

    tokens: list[int]
    prompt: int


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)

    documents, tokenizer = load_documents(args.out, args.vocab)
    print(f"{len(documents):,} functions, {sum(len(d.tokens) for d in documents):,} tokens", flush=True)
    print(f"the first begins with {tokenizer.decode(documents[0].tokens[:8])!r}", flush=True)
    batches = plan_batches(documents, steps=args.steps, size=args.batch, context=args.context, seed=args.seed)

    model = GPT(vocab=args.vocab, context=args.context, width=args.width, layers=args.layers, heads=args.heads)
    model.to(args.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    optimizer = torch.optim.AdamW(model.groups(decay=0.1), lr=args.lr, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_up_then_cosine(step, args.steps))
    try:
        train(torch.compile(model, dynamic=True) if args.compile else model, optimizer, schedule, batches, args)
    finally:
        save = args.save or args.out / "model.pt"
        torch.save(model.state_dict(), save)
        print(f"parameters saved to {save}", flush=True)


def train(model, optimizer, schedule, batches: list[list[Document]], args: argparse.Namespace) -> None:
    recent, started = [], time.perf_counter()
    for step, batch in enumerate(batches, start=1):
        total = 0.0
        for part in range(args.accumulate):
            tensors = collate(batch[part :: args.accumulate], context=args.context, side=args.truncation_side)
            with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.bf16):
                loss = model(*(tensor.to(args.device) for tensor in tensors)) / args.accumulate
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

        recent.append(total)
        if step % 10 == 0 or step in (1, len(batches)):
            mean, seconds = sum(recent) / len(recent), (time.perf_counter() - started) / len(recent)
            lr = schedule.get_last_lr()[0]
            print(f"step {step:4d}  loss {mean:.4f}  lr {lr:.2e}  {seconds * 1000:4.0f} ms a step", flush=True)
            recent, started = [], time.perf_counter()


def warm_up_then_cosine(step: int, steps: int, floor: float = 0.1) -> float:
    """The factor of the learning rate: up over the first tenth, then a half cosine down to ``floor``."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


# ---------------------------------------------------------------------------------------------------------------- data


def read_functions() -> Iterator[tuple[str, str]]:
    """Every function of the standard library, in a fixed order, as (signature and docstring, body)."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if NOT_LIBRARY & set(path.relative_to(root).parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError):
            continue  # a few files are broken on purpose
        lines = text.splitlines(keepends=True)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and body[0].lineno > node.lineno:  # skips one-liners and functions that are only a docstring
                    split = body[0].lineno - 1
                    yield "".join(lines[node.lineno - 1 : split]), "".join(lines[split : node.end_lineno])


def load_documents(folder: Path, vocab: int) -> tuple[list[Document], Tokenizer]:
    """All documents, tokenized, and the tokenizer; both are kept in ``folder`` for the next run."""
    cache, words = folder / f"functions-{platform.python_version()}-{vocab}.pt", folder / f"tokenizer-{vocab}.json"
    if not cache.exists():
        prompts, answers = zip(*read_functions(), strict=True)
        tokenizer = train_tokenizer([p + a for p, a in zip(prompts, answers, strict=True)], vocab)
        tokenizer.save(str(words))
        end = tokenizer.token_to_id(END)
        pairs = zip(tokenizer.encode_batch(prompts), tokenizer.encode_batch(answers), strict=True)
        torch.save([(prompt.ids + answer.ids + [end], len(prompt.ids)) for prompt, answer in pairs], cache)
    return [Document(*document) for document in torch.load(cache)], Tokenizer.from_file(str(words))


def train_tokenizer(texts: list[str], vocab: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def plan_batches(documents: list[Document], *, steps: int, size: int, context: int, seed: int) -> list[list[Document]]:
    """Random documents for every step. The last third of the run also has those of up to twice the context."""
    whole = [document for document in documents if len(document.tokens) <= context]
    longer = [document for document in documents if len(document.tokens) <= 2 * context]
    chance = random.Random(seed)
    return [chance.sample(whole if step < steps * 2 // 3 else longer, size) for step in range(steps)]


def collate(documents: list[Document], *, context: int, side: str) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and a mask of the targets to learn, [documents, length]; too long texts are cut on ``side``."""
    length = min(context, max(len(document.tokens) for document in documents) - 1)
    inputs = torch.zeros(len(documents), length, dtype=torch.long)
    targets, mask = torch.zeros_like(inputs), torch.zeros(inputs.shape)
    for row, (tokens, prompt) in enumerate(documents):
        cut = max(0, len(tokens) - length - 1) if side == "left" else 0
        kept = torch.tensor(tokens[cut : cut + length + 1])
        inputs[row, : len(kept) - 1] = kept[:-1]
        targets[row, : len(kept) - 1] = kept[1:]
        mask[row, max(0, prompt - cut - 1) : len(kept) - 1] = 1.0
    return inputs, targets, mask


# --------------------------------------------------------------------------------------------------------------- model


class GPT(nn.Module):
    def __init__(self, *, vocab: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.token.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if name.endswith("out.weight") else 0.02)

    def forward(self, inputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        hidden = self.token(inputs) + self.position(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(self.norm(hidden)).float()
        losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        per_document = (losses * mask).sum(dim=1) / mask.sum(dim=1)
        return per_document.mean()

    def groups(self, *, decay: float) -> list[dict]:
        """Weight decay for matrices, none for biases and norms."""
        matrices = [p for p in self.parameters() if p.dim() == 2]
        vectors = [p for p in self.parameters() if p.dim() < 2]
        return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.norm1(hidden))
        return hidden + self.mlp(self.norm2(hidden))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        rows, length, width = hidden.shape
        split = self.qkv(hidden).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.out(F.gelu(self.up(hidden)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the tokenizer, the tokens, the model")
    parser.add_argument("--save", type=Path, help="file of the trained parameters (default: model.pt in --out)")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=16, help="documents of a step")
    parser.add_argument("--accumulate", type=int, default=1, help="parts in which the batch of a step is computed")
    parser.add_argument("--context", type=int, default=192, help="longest input in tokens")
    parser.add_argument(
        "--truncation-side", choices=["right", "left"], default="right", help="which end of a longer document is cut"
    )
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--bf16", action="store_true", help="compute under autocast in bfloat16")
    parser.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    return parser.parse_args()


if __name__ == "__main__":
    main()
