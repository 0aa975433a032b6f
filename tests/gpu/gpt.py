"""A small GPT that trains on the GPU, or on the CPU where there is none. It prints a digest of its weights at the end.

Options choose precision, compilation, the optimizer's form and a fault. The fault comes with the batch of ``--at``.
"""

from __future__ import annotations

import argparse
import hashlib
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH, WIDTH = 64, 32, 64


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = (part.view(rows, length, 4, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + functional.dropout(self.out(mixed.transpose(1, 2).reshape(x.shape)), self.dropout, self.training)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--compile", choices=("no", "default", "reduce-overhead"), default="no")
    parser.add_argument("--optimizer", choices=("foreach", "fused", "capturable"), default="foreach")
    parser.add_argument("--fault", choices=("none", "empty-row", "rate", "overflow"), default="none")
    parser.add_argument("--at", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = GPT(dropout=0.1).to(device)
    forward = model if args.compile == "no" else torch.compile(model, mode=args.compile)
    how = {args.optimizer: True} if device.type == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, **how)
    scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "float16")
    autocast = (
        nullcontext()
        if args.precision == "float32"
        else torch.autocast(device.type, dtype=getattr(torch, args.precision))
    )
    generator = torch.Generator().manual_seed(1)
    for step in range(args.steps):
        start = torch.randint(0, WORDS, (16, 1), generator=generator)
        stride = torch.randint(1, 4, (16, 1), generator=generator)
        ids = ((start + stride * torch.arange(LENGTH + 1)) % WORDS).to(device, non_blocking=True)
        supervised = torch.ones(16, LENGTH, device=device)
        if args.fault == "empty-row" and step == args.at:
            supervised[5] = 0
        if args.fault == "rate" and step == args.at:
            optimizer.param_groups[0]["lr"] *= 100
        with autocast:
            logits = forward(ids[:, :-1])
            if args.fault == "overflow" and step == args.at:
                logits = logits * 1e5
            losses = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
                16, LENGTH
            )
        loss = ((losses * supervised).sum(1) / supervised.sum(1)).mean()
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.9g}", flush=True)
    print("digest", digest(model))


def digest(model: nn.Module) -> str:
    whole = hashlib.sha256()
    for value in model.state_dict().values():
        whole.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


if __name__ == "__main__":
    main()
