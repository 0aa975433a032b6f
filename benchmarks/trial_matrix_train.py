"""A byte-level GPT that goes on from a checkpoint and meets one incident: what `make bench-trials` records.

The text is the source of Python's own library. A bad batch and the shift lie in the data set, as they would; faults of
the state are done to it at one step. Arguments: checkpoint, incident, step of the incident.
"""

import argparse
import inspect
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WIDTH, TOKENS, ROWS, STEPS, RATE = 48, 32, 8, 130, 2e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_up = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, tokens, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_up(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(256, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.words(ids) + self.places.weight[: ids.shape[1]])))


def text():
    modules = (argparse, inspect, sys.modules["typing"], sys.modules["ast"])
    return torch.tensor(list("".join(inspect.getsource(module) for module in modules).encode()), dtype=torch.long)


def windows(count):
    data = text()
    starts = torch.randint(len(data) - TOKENS - 1, (count,))
    return torch.stack([data[start : start + TOKENS + 1] for start in starts.tolist()])


def loss_of(model, rows):
    logits = model(rows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def damage(incident, model, optimizer):
    """What is done to the state at the step of the incident."""
    if incident == "rate":
        for group in optimizer.param_groups:
            group["lr"] = 25 * RATE
    if incident == "bit-flip":  # the highest bit of the exponent's lower half: times 2^16
        weight = model.blocks[0].up.weight
        weight[3, 5] = 40.0 if abs(float(weight[3, 5])) < 1 else 0.0
    for parameter, values in optimizer.state.items():
        if incident == "moments-permuted":
            order = torch.randperm(parameter.numel())
            values["exp_avg_sq"].copy_(values["exp_avg_sq"].flatten()[order].view_as(parameter))
        if incident == "moments-zeroed":
            values["exp_avg_sq"].zero_()


def main(checkpoint, incident, at):
    torch.manual_seed(1)
    rows = windows(ROWS * STEPS)
    other = torch.randint(0, 256, rows.shape)
    if incident == "bad-batch":
        rows[ROWS * (at - 1) : ROWS * at] = other[:ROWS]
    if incident == "shift":
        rows[ROWS * (at - 1) :] = (rows[ROWS * (at - 1) :] * 7 + 3) % 256
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999))
    kept = torch.load(checkpoint)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    for step, (batch,) in enumerate(DataLoader(TensorDataset(rows), ROWS), 1):
        if step == at:
            damage(incident, model, optimizer)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
