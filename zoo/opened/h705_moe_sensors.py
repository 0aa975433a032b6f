# expect: healthy
# symptom: resembles a collapsed mixture-of-experts router: one expert takes about 70 % of the rows, a rare one about 4 %, in every step
# axis: model
# cause: healthy: the data themselves are skewed (one sensor type makes up 70 % of the rows), every expert serves the sensor types it should, all experts receive gradients and the error falls for every type
# says: none
# onset_step: none
# fix: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)

KINDS, FEATS, SIGNAL = 4, 16, 12
SHARE = torch.tensor([0.70, 0.16, 0.10, 0.04])
gen = torch.Generator().manual_seed(1)
centres = 1.5 * torch.randn(KINDS, FEATS - SIGNAL, generator=gen)
curves = torch.randn(KINDS, SIGNAL, 2, generator=gen) / SIGNAL**0.5


def readings(n):
    """A reading = a header that betrays the sensor type + a signal; each type has a calibration curve of its own."""
    kind = torch.multinomial(SHARE, n, replacement=True, generator=gen)
    header = centres[kind] + 0.3 * torch.randn(n, FEATS - SIGNAL, generator=gen)
    signal = torch.randn(n, SIGNAL, generator=gen)
    proj = torch.einsum("ns,nsk->nk", signal, curves[kind])
    y = proj[:, 0] + torch.sin(1.5 * proj[:, 1]) + 0.05 * torch.randn(n, generator=gen)
    return torch.cat([header, signal], 1), y, kind


class Expert(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATS, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Top1MoE(nn.Module):
    def __init__(self, experts=KINDS):
        super().__init__()
        self.experts = nn.ModuleList([Expert() for _ in range(experts)])
        self.router = nn.Linear(FEATS, experts, bias=False)

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        chosen = probs.argmax(-1)
        out = torch.zeros(len(x))
        for e, expert in enumerate(self.experts):
            rows = (chosen == e).nonzero(as_tuple=True)[0]
            if len(rows):
                out = out.index_copy(0, rows, expert(x[rows]))
        return out, chosen, probs


def main():
    model = Top1MoE()
    router = list(model.router.parameters())
    rest = list(model.experts.parameters())
    optim = torch.optim.Adam([{"params": router, "lr": 1e-2}, {"params": rest, "lr": 3e-3}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=700, eta_min=1e-5)
    xv, yv, kv = readings(4000)
    for step in range(1, 701):
        x, y, kind = readings(256)
        pred, chosen, probs = model(x)
        # the header is labelled on the test bench, so the router is taught directly
        loss = F.mse_loss(pred, y) + 0.1 * F.nll_loss((probs + 1e-9).log(), kind)
        optim.zero_grad()
        loss.backward()
        optim.step()
        schedule.step()
        if step % 50 == 0 or step == 1:
            load = torch.bincount(chosen, minlength=KINDS) / len(chosen)
            print(f"step {step:3d} loss {loss.item():.4f} load " + " ".join(f"{v:.2f}" for v in load.tolist()))
    with torch.no_grad():
        pred = model(xv)[0]
    for k in range(KINDS):
        m = kv == k
        print(
            f"sensor type {k}: rows {int(m.sum()):4d} mse {F.mse_loss(pred[m], yv[m]).item():.4f} "
            f"variance {yv[m].var().item():.3f}"
        )


if __name__ == "__main__":
    main()
