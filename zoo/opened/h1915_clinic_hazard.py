# expect: healthy
# symptom: resembles a model that hardly learns: the loss hardly falls after the first steps and stays above four, and most rows do not enter the mean
# axis: loss
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import math
import torch
import torch.nn as nn


def cohort(n, gen):
    """Covariates, observed time and event flag; two thirds of the patients are censored."""
    x = torch.randn(n, 14, generator=gen)
    x[:, 5:9] = (x[:, 5:9] > 0.4).float()
    risk = 0.9 * x[:, 0] + 0.8 * x[:, 1] * x[:, 5] - 0.7 * x[:, 6] + 0.5 * (x[:, 2] ** 2 - 1) - 0.6 * x[:, 3]
    event_time = -torch.log(torch.rand(n, generator=gen)) / (0.05 * risk.exp())
    censor_time = 14.0 * torch.rand(n, generator=gen)
    time = torch.minimum(event_time, censor_time)
    return x, time, event_time <= censor_time


class RiskNet(nn.Module):
    def __init__(self, d_in, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, width),
            nn.SELU(),
            nn.Linear(width, width),
            nn.SELU(),
            nn.Dropout(0.1),
            nn.Linear(width, 1, bias=False),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def partial_likelihood(score, time, event):
    order = time.argsort(descending=True)
    score, event = score[order], event[order]
    # rows before and including i are those still at risk at its time
    at_risk = torch.logcumsumexp(score, 0)
    return -(score - at_risk)[event].mean()


@torch.no_grad()
def concordance(score, time, event):
    earlier = (time[:, None] < time[None, :]) & event[:, None]
    right = (score[:, None] > score[None, :]).float()
    return (right * earlier).sum().item() / earlier.sum().item()


def main(steps=700, batch=192):
    torch.manual_seed(55)
    gen = torch.Generator().manual_seed(56)
    x, time, event = cohort(6000, gen)
    vx, vt, ve = cohort(1200, gen)
    print(f"events {event.float().mean():.2f}  log(batch) {math.log(batch):.3f}")
    net = RiskNet(x.shape[1])
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    for step in range(1, steps + 1):
        i = torch.randint(len(x), (batch,))
        loss = partial_likelihood(net(x[i]), time[i], event[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            net.eval()
            print(
                f"step {step} loss {loss.item():.4f} val c-index {concordance(net(vx).detach(), vt, ve):.3f}",
                flush=True,
            )
            net.train()


if __name__ == "__main__":
    main()
