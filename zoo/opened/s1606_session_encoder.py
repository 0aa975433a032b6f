# expect: sick
# symptom: the encoder trains without complaint but stays at the accuracy of guessing from which items occur; the predictions change with the other samples of the batch
# axis: model
# cause: nn.TransformerEncoderLayer is built without batch_first=True but gets (batch, time, channel) tensors, so attention runs across the samples of the batch instead of the time steps
# says: batch_?\s?first|(attention|attend|mix|encoder|leak).{0,60}(across|over|between|along|wrong).{0,30}(batch|samples|axis|dim)|(batch|axis|axes|dim(ension)?s?).{0,40}(swap|transpos|wrong|mixed|exchang|as (the )?(time|sequence))|sequence[- ]first
# onset_step: 0
# fix: batch_first=True (or transpose to (time, batch, channel))
# mended: batch_first=True
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

N_DEV, N_CAT, T, BATCH, STEPS = 8, 8, 9, 64, 700


def sessions(n, g):
    """Eight purchases, one per device, then a return request. The class is the category bought on the device that asks."""
    dev = torch.stack([torch.randperm(N_DEV, generator=g) for _ in range(n)])
    cat = torch.randint(0, N_CAT, (n, T - 1), generator=g)
    ask = torch.randint(0, T - 1, (n,), generator=g)
    r = torch.arange(n)
    ev = torch.stack([torch.cat([dev, dev[r, ask][:, None]], 1), torch.cat([cat, torch.full((n, 1), N_CAT)], 1)], -1)
    return ev, cat[r, ask]


class SessionEncoder(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.dev, self.cat = nn.Embedding(N_DEV, dim), nn.Embedding(N_CAT + 1, dim)
        self.pos = nn.Parameter(0.1 * torch.randn(1, T, dim))
        extra = {"batch_first": True} if MENDED else {}
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.0, activation="gelu", norm_first=True, **extra
        )
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, N_CAT)

    def forward(self, ev):
        h = self.dev(ev[..., 0]) + self.cat(ev[..., 1]) + self.pos
        h = self.norm(self.enc(h))
        return self.head(h.mean(1))


@torch.no_grad()
def accuracy(model, ev, y):
    model.eval()
    hit = torch.cat([model(ev[i : i + BATCH]).argmax(1) == y[i : i + BATCH] for i in range(0, len(ev), BATCH)])
    model.train()
    return hit.float().mean().item()


def main():
    g = torch.Generator().manual_seed(8)
    ev, y = sessions(16000, g)
    vev, vy = sessions(1024, g)
    model = SessionEncoder()
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1.5e-3, total_steps=STEPS, pct_start=0.1)
    run, t0 = 0.0, time.time()
    for step in range(STEPS):
        i = torch.randint(0, len(ev), (BATCH,), generator=g)
        loss = F.cross_entropy(model(ev[i]), y[i])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        run += loss.item()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:4d} loss {run / 20:.4f}", flush=True)
            run = 0.0
        if (step + 1) % 200 == 0:
            print(f"  val accuracy {accuracy(model, vev, vy):.3f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
