# expect: healthy
# symptom: losses of hundreds and a clip active at every step resemble exploding gradients; losses are summed
# axis: optimizer
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(81)

STATES, DIM, LENGTH, BATCH, STEPS = 4, 3, 48, 32, 300
MAX_NORM = 1.0


def regimes(n, seed):
    """Hidden regimes that last a while; each one shows by the sign pattern of noisy increments."""
    g = torch.Generator().manual_seed(seed)
    means = torch.tensor([[0.9, 0.0, -0.4], [-0.9, 0.5, 0.0], [0.0, -0.9, 0.6], [0.3, 0.7, 0.9]])
    s = torch.randint(0, STATES, (n,), generator=g)
    path, obs = [], []
    for _ in range(LENGTH):
        jump = torch.rand(n, generator=g) < 0.06
        s = torch.where(jump, torch.randint(0, STATES, (n,), generator=g), s)
        path.append(s)
        obs.append(means[s] + 0.8 * torch.randn(n, DIM, generator=g))
    return torch.stack(obs, 1), torch.stack(path, 1)


class RegimeGRU(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(DIM, hidden, batch_first=True)
        self.out = nn.Linear(hidden, STATES)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h)


@torch.no_grad()
def frame_accuracy(model, x, y):
    return (model(x).argmax(-1) == y).float().mean().item()


def main():
    x, y = regimes(2000, 1)
    xt, yt = regimes(400, 2)
    model = RegimeGRU()
    # summed loss with a tight norm: the step length is set by lr alone (normalised gradient descent)
    opt = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.5)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: max(0.02, 1 - k / STEPS))
    for step in range(STEPS):
        idx = torch.randint(0, len(x), (BATCH,))
        logits = model(x[idx])
        loss = F.cross_entropy(logits.flatten(0, 1), y[idx].flatten(), reduction="sum")
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.1f} grad norm {norm.item():.1f}")
    base = yt.flatten().bincount().max().item() / yt.numel()
    print(f"final loss {loss.item():.1f} frame accuracy {frame_accuracy(model, xt, yt):.3f} (majority {base:.3f})")


if __name__ == "__main__":
    main()
