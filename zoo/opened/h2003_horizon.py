# expect: healthy
# symptom: the training loss goes up in stages during the run (the forecast horizon grows by a curriculum and teacher forcing is phased out)
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn

STAGES = [(0, 1), (100, 4), (220, 10), (360, 20)]
TOTAL = 520
CONTEXT = 24
MAX_H = 20


def pendulums(n, length, seed):
    """Damped, driven pendulums seen by noisy angle and speed sensors."""
    rng = np.random.default_rng(seed)
    th = rng.uniform(-2.0, 2.0, n)
    om = rng.uniform(-1.0, 1.0, n)
    w2 = rng.uniform(0.6, 1.6, n)
    out = np.zeros((n, length, 2), dtype=np.float32)
    for t in range(length):
        for _ in range(4):
            om = om + 0.05 * (-w2 * np.sin(th) - 0.03 * om)
            th = th + 0.05 * om
        out[:, t, 0], out[:, t, 1] = th, om
    out += 0.02 * rng.standard_normal(out.shape).astype(np.float32)
    return torch.from_numpy(out)


class Rollout(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inp = nn.Linear(2, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.hidden = hidden

    def forward(self, past, steps, truth=None, p_truth=0.0):
        h = past.new_zeros(len(past), self.hidden)
        for t in range(past.shape[1]):
            h = self.cell(torch.tanh(self.inp(past[:, t])), h)
        x = past[:, -1]
        preds = []
        for t in range(steps):
            x = x + self.out(h)
            preds.append(x)
            if t + 1 < steps:
                nxt = x
                if truth is not None and p_truth > 0:
                    use = (torch.rand(len(x), 1) < p_truth).float()
                    nxt = use * truth[:, t] + (1 - use) * x
                    x = nxt
                h = self.cell(torch.tanh(self.inp(nxt)), h)
        return torch.stack(preds, 1)


def horizon_at(step):
    return [h for s, h in STAGES if step >= s][-1]


def windows(data, n, h):
    rows = torch.randint(0, data.shape[0], (n,))
    starts = torch.randint(0, data.shape[1] - CONTEXT - h + 1, (n,))
    idx = starts[:, None] + torch.arange(CONTEXT + h)[None]
    w = data[rows[:, None], idx]
    return w[:, :CONTEXT], w[:, CONTEXT:]


@torch.no_grad()
def validate(model, data):
    past, future = data[:, :CONTEXT], data[:, CONTEXT : CONTEXT + MAX_H]
    err = (model(past, MAX_H) - future).pow(2).mean((0, 2))
    return err[0].item(), err.mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, val = pendulums(400, 90, 1), pendulums(100, CONTEXT + MAX_H, 2)
    model = Rollout()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [420, 480], 0.4)
    last_h = 0
    for step in range(TOTAL):
        h = horizon_at(step)
        if h != last_h:
            print(f"step {step} horizon {last_h} -> {h}")
            last_h = h
        past, future = windows(train, 64, h)
        p_truth = max(0.0, 0.8 * (1 - step / 360))
        loss = (model(past, h, future, p_truth) - future).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} h {h} loss {loss.item():.5f}")
        if (step + 1) % 130 == 0:
            one, full = validate(model, val)
            print(f"step {step} val mse first {one:.5f} full horizon {full:.5f}")


if __name__ == "__main__":
    main()
