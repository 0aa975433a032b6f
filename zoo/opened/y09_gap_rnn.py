# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: precision
# cause: a large number is put into a narrow format before a difference or a phase is taken, so its fine part is rounded away
# says: (float32|float16|bfloat16|half|precision|round|mantissa|24.?bit|coarse|format).{0,160}
# onset_step: 0
# fix: take the offset off in float64 first
# mended: the same with the fix
import os

import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(0)


def simulate_sessions(n_users=240, n_events=10, seed=0):
    """Click times (unix seconds) per user; quick clickers tend to buy."""
    rng = np.random.default_rng(seed)
    pace = rng.uniform(0.5, 8.0, size=(n_users, 1))
    gaps = rng.exponential(pace, size=(n_users, n_events))
    first = 1_718_000_000 + rng.uniform(0, 86_400 * 30, size=(n_users, 1))
    times = first + np.cumsum(gaps, axis=1)
    buys = (pace[:, 0] + rng.normal(0, 0.5, n_users) < 3.6).astype(np.float32)
    return times, buys


def gap_features(times):
    ts = torch.tensor(times, dtype=torch.float64 if MENDED else torch.float32)
    gaps = ts[:, 1:] - ts[:, :-1]
    return torch.log1p(gaps.clamp(min=0)).float()


class GapRNN(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, gaps):
        _, h = self.gru(gaps.unsqueeze(-1))
        return self.head(h[-1]).squeeze(-1)


def main():
    times, buys = simulate_sessions()
    x, y = gap_features(times), torch.from_numpy(buys)
    model = GapRNN()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    bce = nn.BCEWithLogitsLoss()
    for step in range(100):
        idx = torch.randint(0, 200, (40,))
        loss = bce(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:3d} loss {loss.item():.4f}")
    with torch.no_grad():
        out = model(x[200:])
        acc = ((out > 0).float() == y[200:]).float().mean().item()
        print(f"test loss {bce(out, y[200:]).item():.4f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
