# expect: sick
# fault: all weight matrices frozen by ndim test
# onset_step: 0
# says: (?i)(frozen|freez|requires_grad|not train|never train|untrained|no gradient|only .*(bias|norm|1-?d|vector))
# note: a helper meant to fix the norms tests p.ndim > 1 instead of p.ndim <= 1, so the matrices and convolution kernels stay at their random initial values.
import torch
from torch import nn


class PatchNet(nn.Sequential):
    def __init__(self, dim=64, classes=10):
        super().__init__(
            nn.Conv2d(3, dim, 4, 4),
            nn.GroupNorm(8, dim),
            nn.GELU(),
            nn.Conv2d(dim, dim, 3, padding=1),
            nn.GroupNorm(8, dim),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(dim, classes),
        )


class Trainer:
    cfg = dict(lr=5e-2, momentum=0.9, steps=150, bs=32, fix_norms=True)

    def __init__(self, model, **kw):
        self.cfg = {**self.cfg, **kw}
        self.model = model
        if self.cfg["fix_norms"]:
            # we don't want norm affine params to move in the first phase
            model.apply(self._maybe_fix)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=self.cfg["lr"], momentum=self.cfg["momentum"])
        self.protos = torch.randn(10, 3, 16, 16)

    @staticmethod
    def _maybe_fix(m):
        for p in m.parameters(recurse=False):
            if p.ndim > 1:
                p.requires_grad_(False)

    def sample(self):
        y = torch.randint(0, 10, (self.cfg["bs"],))
        x = self.protos[y] * 0.6 + torch.randn(len(y), 3, 16, 16)
        return {"pixel_values": x, "labels": y}

    def fit(self):
        lossf = nn.CrossEntropyLoss()
        run = 0.0
        for it in range(1, self.cfg["steps"] + 1):
            b = self.sample()
            self.opt.zero_grad(set_to_none=True)
            loss = lossf(self.model(b["pixel_values"]), b["labels"])
            loss.backward()
            self.opt.step()
            run = 0.9 * run + 0.1 * loss.item()
            if it % 25 == 0:
                print("iter", it, "ema loss", round(run, 4))


if __name__ == "__main__":
    torch.manual_seed(7)
    Trainer(PatchNet()).fit()
