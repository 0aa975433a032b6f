"""Whole training steps in one CUDA graph, as torch's notes on CUDA semantics have them. It prints a digest."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

STEPS = 100


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    inputs, labels = torch.randn(64, 64, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    criterion = nn.CrossEntropyLoss()

    def step() -> torch.Tensor:
        loss: torch.Tensor = criterion(model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    for number in range(STEPS):
        inputs.copy_(torch.randn(64, 64, device="cuda"))
        labels.copy_(torch.randint(0, 10, (64,), device="cuda"))
        graph.replay()
        if number % 25 == 0:
            print(f"step {number} loss {loss.item():.9g}", flush=True)
    values = [parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters()]
    print("digest", hashlib.sha256(b"".join(values)).hexdigest())


if __name__ == "__main__":
    main()
