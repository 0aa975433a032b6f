# expect: healthy
# symptom: resembles bad rows or a rate that is too high: the loss has sudden spikes from rare large claims and very large groups
# axis: data
"""Pure premium model for motor insurance: Tweedie deviance, policies grouped by fleet (group sizes are very uneven)."""

import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
P = 1.6  # Tweedie power, between Poisson and gamma
N_MODEL, N_REGION = 60, 20


def simulate(n, seed):
    w = torch.Generator().manual_seed(7)
    model_eff = 0.8 * torch.randn(N_MODEL, generator=w)
    region_eff = 0.6 * torch.randn(N_REGION, generator=w)
    g = torch.Generator().manual_seed(seed)
    age = 18 + 60 * torch.rand(n, generator=g)
    power = 40 + 160 * torch.rand(n, generator=g) ** 2
    bonus = torch.randint(0, 15, (n,), generator=g).float()
    model = torch.randint(0, N_MODEL, (n,), generator=g)
    region = torch.randint(0, N_REGION, (n,), generator=g)
    exposure = 0.2 + 0.8 * torch.rand(n, generator=g)
    log_freq = (
        -0.3 + 1.3 * torch.exp(-(age - 18) / 8) + 0.3 * ((age - 70).clamp(min=0) / 5) - 0.1 * bonus + region_eff[region]
    )
    log_sev = 0.2 + 0.008 * power + model_eff[model]
    count = torch.poisson(torch.exp(log_freq) * exposure, generator=g)
    amount = torch.zeros(n)
    for k in range(1, 6):
        noise = torch.exp(0.9 * torch.randn(n, generator=g) - 0.4)
        amount += (count >= k) * torch.exp(log_sev) * noise
    fleet = torch.distributions.Pareto(torch.tensor(8.0), torch.tensor(1.0))
    torch.manual_seed(seed)
    sizes = []
    while sum(sizes) < n:
        sizes.append(int(min(fleet.sample().item(), 1500)))
    sizes[-1] -= sum(sizes) - n
    premium = torch.exp(log_freq + log_sev)
    num = torch.stack([(age - 48) / 17, (power - 93) / 47, (bonus - 7) / 4.3], 1)
    return dict(
        num=num,
        model=model,
        region=region,
        exposure=exposure,
        y=amount / exposure,
        true=premium,
        groups=torch.arange(n).split([s for s in sizes if s > 0]),
    )


class PremiumNet(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.model, self.region = nn.Embedding(N_MODEL, 6), nn.Embedding(N_REGION, 4)
        self.trunk = nn.Sequential(nn.Linear(13, 256), nn.SELU(), nn.Linear(256, 256), nn.SELU())
        self.log_mu = nn.Linear(256, 1)
        nn.init.zeros_(self.log_mu.weight)
        nn.init.constant_(self.log_mu.bias, math.log(base))

    def forward(self, d, i):
        e = torch.cat([d["num"][i], self.model(d["model"][i]), self.region(d["region"][i])], 1)
        return self.log_mu(self.trunk(e)).squeeze(1)


def tweedie(log_mu, y, w):
    nll = -y * torch.exp((1 - P) * log_mu) / (1 - P) + torch.exp((2 - P) * log_mu) / (2 - P)
    return (w * nll).sum()


@torch.no_grad()
def gini(pred, y, w):
    """Area between the Lorenz curve of the ordered portfolio and the diagonal."""
    o = pred.argsort()
    cw, cy = (w[o]).cumsum(0) / w.sum(), (w[o] * y[o]).cumsum(0) / (w * y).sum()
    return (1 - 2 * torch.trapezoid(cy, cw)).item()


def main():
    train, val = simulate(60000, 1), simulate(20000, 2)
    base = ((train["exposure"] * train["y"]).sum() / train["exposure"].sum()).item()
    groups = train["groups"]
    size = torch.tensor([len(g) for g in groups])
    print(
        f"{len(groups)} fleets, median size {size.median().item()}, largest {size.max().item()}, base premium {base:.2f}"
    )
    torch.manual_seed(15)
    net = PremiumNet(base)
    opt = torch.optim.Adadelta(net.parameters(), lr=0.5, rho=0.95)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=800, power=1.0)
    typical = 12 * train["exposure"].mean().item() * size.float().mean().item()
    allv = torch.arange(len(val["y"]))
    ceiling = gini(val["true"], val["y"], val["exposure"])
    with torch.no_grad():
        start = tweedie(net(val, allv), val["y"], val["exposure"]).item() / val["exposure"].sum().item()
        best = tweedie(val["true"].log(), val["y"], val["exposure"]).item() / val["exposure"].sum().item()
    print(f"val deviance: flat tariff {start:.4f}, true premium {best:.4f}")
    step, window = 0, []
    while step < 800:
        order = torch.randperm(len(groups))
        for k in range(0, len(order) - 11, 12):
            i = torch.cat([groups[j] for j in order[k : k + 12].tolist()])
            loss = tweedie(net(train, i), train["y"][i], train["exposure"][i]) / typical
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 3.0)
            opt.step()
            sched.step()
            step += 1
            window.append(loss.item())
            if step % 20 == 0:
                print(f"{step:4d} rows {len(i):5d} loss {loss.item():8.4f} mean20 {sum(window[-20:]) / 20:.4f}")
            if step % 200 == 0:
                with torch.no_grad():
                    lm = net(val, allv)
                dev = tweedie(lm, val["y"], val["exposure"]).item() / val["exposure"].sum().item()
                r = torch.corrcoef(torch.stack([lm, val["true"].log()]))[0, 1].item()
                print(
                    f"   val deviance {dev:.4f} gini {gini(lm, val['y'], val['exposure']):.3f} of {ceiling:.3f} "
                    f"corr with true log premium {r:.3f}"
                )
            if step >= 800:
                break


if __name__ == "__main__":
    main()
