# expect: healthy
# symptom: resembles a missing shuffle with a leaking hidden state and a rate that is reset by mistake: chronological batches, carried state, periodic loss bumps
# axis: schedule
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F


def machine_streams(n, length, gen):
    """Parallel streams of valve pulses; the tank leaks slowly between pulses."""
    valve = (torch.rand(n, length, generator=gen) < 0.08).float()
    temp = torch.sin(torch.arange(length) * 0.11 + 6.28 * torch.rand(n, 1, generator=gen))
    pressure = torch.zeros(n)
    target = []
    for t in range(length):
        pressure = 0.96 * pressure + valve[:, t] * (1 + 0.5 * temp[:, t])
        target.append(pressure)
    x = torch.stack([valve * 2, temp], -1)
    y = torch.stack(target, 1)
    return x, (y - 2.0 + 0.05 * torch.randn(y.shape, generator=gen)) / 1.2


class StreamModel(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, state):
        h, state = self.rnn(x, state)
        return self.out(h).squeeze(-1), state


def chunks(x, y, width):
    for t in range(0, x.shape[1] - width + 1, width):
        yield x[:, t : t + width], y[:, t : t + width]


@torch.no_grad()
def validate(model, x, y, width):
    state, err = None, []
    for cx, cy in chunks(x, y, width):
        pred, state = model(cx, state)
        err.append((pred - cy).pow(2).mean())
    return torch.stack(err).mean().item()


def main(passes=10, width=25):
    torch.manual_seed(23)
    gen = torch.Generator().manual_seed(24)
    x, y = machine_streams(24, 1000, gen)
    vx, vy = machine_streams(24, 500, gen)
    model = StreamModel()
    opt = torch.optim.Adam(model.parameters(), lr=6e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=40, T_mult=1, eta_min=1e-4)
    step = 0
    for sweep in range(passes):
        state = None
        for cx, cy in chunks(x, y, width):
            pred, state = model(cx, state)
            state = state.detach()
            loss = F.mse_loss(pred, cy)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}", flush=True)
        print(f"sweep {sweep} val mse {validate(model, vx, vy, width):.4f}", flush=True)


if __name__ == "__main__":
    main()
