# expect: sick
# symptom: the forecast loss falls well for a quarter of the run, then stands still for the rest while the noise-free target is far off
# axis: optimizer
# cause: with gradient accumulation 4 the LR scheduler is stepped after every micro-batch though its length is counted in optimizer steps, so the learning rate has decayed to zero after a quarter of the run
# says: schedul\w*[^.\n]{0,80}(step|micro|accum|too (often|fast|early|soon|many|short)|times|zero|\bend|ran out|finish|exhaust|horizon|length|anneal|decay)|learning rate[^.\n]{0,60}(zero|0\b|decay|too (early|soon|fast|small)|anneal|ran out|end)|\blr\b[^.\n]{0,60}(zero|0\b|decay|too (early|soon|fast|small)|anneal|ran out)
# onset_step: 120
# fix: step the scheduler once per optimizer step
# mended: scheduler.step() is called once per optimizer step instead of once per micro-batch
import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)

CONTEXT, HORIZON = 72, 24
UPDATES, ACCUM, MICRO = 480, 4, 16
WARMUP, PEAK_LR = 20, 1.5e-3


def make_series(n_series=40, hours=24 * 70):
    t = torch.arange(hours).float()
    out = []
    for _ in range(n_series):
        day = 1.0 + 0.4 * torch.sin(2 * math.pi * t / 168 + torch.rand(1) * 6.28)
        base = day * torch.sin(2 * math.pi * t / 24 + torch.rand(1) * 6.28)
        base = base + 0.5 * torch.sin(4 * math.pi * t / 24 + torch.rand(1) * 6.28)
        base = base + 0.6 * torch.sin(2 * math.pi * t / (30 + 20 * torch.rand(1)) + torch.rand(1) * 6.28)
        out.append(base + 0.1 * torch.randn(hours))
    return torch.stack(out)


class Windows:
    def __init__(self, series):
        self.series = series

    def sample(self, n):
        rows = torch.randint(0, len(self.series), (n,))
        starts = torch.randint(0, self.series.shape[1] - CONTEXT - HORIZON, (n,))
        idx = starts[:, None] + torch.arange(CONTEXT + HORIZON)
        w = self.series[rows[:, None], idx]
        return w[:, :CONTEXT], w[:, CONTEXT:]


class PatchForecaster(nn.Module):
    def __init__(self, patch=6, dim=48, depth=3, heads=4):
        super().__init__()
        self.patch = patch
        n = CONTEXT // patch
        self.embed = nn.Linear(patch, dim)
        self.pos = nn.Parameter(torch.randn(1, n, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 2, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(n * dim, HORIZON)

    def forward(self, x):
        h = self.embed(x.unflatten(1, (-1, self.patch))) + self.pos
        return self.out(self.enc(h).flatten(1))


class Trainer:
    def __init__(self, model, data):
        self.model, self.data = model, data
        self.opt = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.factor)

    @staticmethod
    def factor(step):
        if step < WARMUP:
            return (step + 1) / WARMUP
        return max(0.0, (UPDATES - step) / (UPDATES - WARMUP))

    def micro_step(self):
        x, y = self.data.sample(MICRO)
        loss = F.mse_loss(self.model(x), y)
        (loss / ACCUM).backward()
        return loss.item()

    def fit(self):
        for update in range(UPDATES):
            total = 0.0
            for k in range(ACCUM):
                total += self.micro_step() / ACCUM
                last = k == ACCUM - 1
                if last:
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.opt.step()
                    self.opt.zero_grad()
                if last or not MENDED:
                    self.sched.step()
            if update % 10 == 0 or update == UPDATES - 1:
                print(f"update {update:4d}  mse {total:.4f}")

    @torch.no_grad()
    def evaluate(self, data):
        self.model.eval()
        losses = []
        for _ in range(20):
            x, y = data.sample(64)
            losses.append(F.mse_loss(self.model(x), y).item())
        return sum(losses) / len(losses)


def main():
    series = make_series()
    trainer = Trainer(PatchForecaster(), Windows(series[:32]))
    trainer.fit()
    print(f"held-out series mse {trainer.evaluate(Windows(series[32:])):.4f}  (noise floor about 0.01)")


if __name__ == "__main__":
    main()
