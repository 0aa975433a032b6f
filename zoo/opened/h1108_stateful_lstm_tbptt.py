# expect: healthy
# symptom: data is read in order and never shuffled, the hidden state is carried from batch to batch and detached, gradients of two windows are added before one step and cleared after it (stateful truncated BPTT)
# axis: none
# mended: none
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

VOCAB = 24


def event_log(n, seed):
    """A machine log: a slow mode switches rarely and decides how the next event follows from the last."""
    rng = np.random.default_rng(seed)
    tables = np.random.default_rng(0).permuted(np.tile(np.arange(4, VOCAB), (4, 1)), axis=1)
    out = np.zeros(n, dtype=np.int64)
    mode, last = 0, 4
    for i in range(n):
        if rng.random() < 0.02:
            mode = int(rng.integers(4))
            out[i] = mode
            continue
        last = int(tables[mode, last - 4]) if rng.random() < 0.9 else int(rng.integers(4, VOCAB))
        out[i] = last
    return torch.from_numpy(out)


def streams(tokens, rows):
    n = (len(tokens) - 1) // rows * rows
    return tokens[:n].view(rows, -1), tokens[1 : n + 1].view(rows, -1)


class LogModel(nn.Module):
    def __init__(self, d=48, hidden=96):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.lstm = nn.LSTM(d, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, x, state):
        h, state = self.lstm(self.emb(x), state)
        return self.out(h), state


@torch.no_grad()
def validate(model, tokens, window):
    model.eval()
    x, y = streams(tokens, 8)
    state, total, k = None, 0.0, 0
    for i in range(0, x.size(1) - window + 1, window):
        logits, state = model(x[:, i : i + window], state)
        total += F.cross_entropy(logits.flatten(0, 1), y[:, i : i + window].flatten()).item()
        k += 1
    model.train()
    return total / k


def main():
    torch.manual_seed(1)
    rows, window, accumulate = 16, 20, 2
    x, y = streams(event_log(96_000, 1), rows)
    held = event_log(8_000, 2)
    model = LogModel()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    step = 0
    for epoch in range(3):
        state = None
        for k, i in enumerate(range(0, x.size(1) - window + 1, window)):
            logits, state = model(x[:, i : i + window], state)
            state = tuple(s.detach() for s in state)
            loss = F.cross_entropy(logits.flatten(0, 1), y[:, i : i + window].flatten())
            (loss / accumulate).backward()
            if (k + 1) % accumulate:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        opt.zero_grad()
        print(f"epoch {epoch} valid loss {validate(model, held, window):.4f}")


if __name__ == "__main__":
    main()
