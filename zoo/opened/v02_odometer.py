# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: the state of a recurrent layer is carried from one batch to the next although the batches are unrelated
# says: (hidden|state|memory|carr).{0,160}
# onset_step: 0
# fix: begin each batch with a new state
# mended: the same with the fix
import argparse
import os

import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=250)
    p.add_argument("--batch-size", type=int, default=48)
    p.add_argument("--window", type=int, default=10)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def record_walks(rng, n_walks=40, length=200):
    """2-D velocities of people walking with slowly turning headings."""
    turn = rng.normal(0, 0.25, size=(n_walks, length)).cumsum(axis=1)
    heading = turn + rng.uniform(0, 2 * np.pi, size=(n_walks, 1))
    speed = 0.25 + 0.1 * rng.random((n_walks, length))
    vel = np.stack([np.cos(heading), np.sin(heading)], -1) * speed[..., None]
    return torch.tensor(vel, dtype=torch.float32)


def sample_windows(walks, batch, window):
    who = torch.randint(0, walks.size(0), (batch,))
    start = torch.randint(0, walks.size(1) - window, (batch,))
    idx = start[:, None] + torch.arange(window)
    vel = walks[who[:, None], idx]
    noisy = vel + 0.02 * torch.randn_like(vel)
    return noisy, vel.cumsum(dim=1)


class Odometer(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, 2)
        self.hidden = None

    def init_hidden(self, batch):
        self.hidden = torch.zeros(1, batch, self.gru.hidden_size)

    def forward(self, vel):
        if self.hidden is None or MENDED:
            self.init_hidden(vel.size(0))
        out, h = self.gru(vel, self.hidden)
        self.hidden = h.detach()
        return self.readout(out)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    walks, held_out = record_walks(rng), record_walks(rng, n_walks=10)

    model = Odometer()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        vel, pos = sample_windows(walks, args.batch_size, args.window)
        pred = model(vel)
        loss = nn.functional.mse_loss(pred, pos)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            print(f"step {step:4d}  mse {loss.item():.4f}")

    model.init_hidden(256)
    with torch.no_grad():
        vel, pos = sample_windows(held_out, 256, args.window)
        print(f"held-out mse {nn.functional.mse_loss(model(vel), pos).item():.4f}")


if __name__ == "__main__":
    main()
