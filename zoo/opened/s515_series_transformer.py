# expect: sick
# symptom: the forecaster's MSE settles on a high plateau from the start, and its validation error is no better than using the last value alone
# axis: model
# cause: nn.TransformerEncoderLayer is built without batch_first=True while the input is (batch, time, features), so attention mixes the windows of the batch instead of the time steps of one window
# says: batch.?first|(batch|sequence|time).{0,40}(dim|axis|axes|dimension)s?.{0,40}(swap|transpos|mix|confus|wrong|exchang|mistaken)|(swap|transpos|mix|confus|wrong|exchang)\w*.{0,40}(batch|sequence|time).{0,20}(dim|axis|axes)|attention.{0,60}(over|across|along|between|mix).{0,30}(batch|samples|windows|examples|rows)|(mix|leak|attend)\w*.{0,40}(across|between|of|to|over).{0,20}(batch|samples|windows|examples|rows)|(batch|samples|windows|examples|rows).{0,40}(mix|leak|attend|see each other)|transpos.{0,30}(batch|time|seq)
# onset_step: 1
# fix: pass batch_first=True to the encoder layer
# mended: with MENDED=1 the encoder layer gets batch_first=True
import math
import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

CFG = dict(window=32, horizon=4, d_model=32, heads=4, layers=2, batch=48, steps=400, lr=2e-3, seed=11)


class WaveStream:
    """Endless supply of noisy two-channel waves with their own frequency, phase and amplitude."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def batch(self, n):
        length = CFG["window"] + CFG["horizon"]
        t = np.arange(length)[None, :]
        freq = self.rng.uniform(0.25, 0.7, (n, 1))
        phase = self.rng.uniform(0, 2 * math.pi, (n, 1))
        amp = self.rng.uniform(0.6, 1.4, (n, 1))
        main = amp * np.sin(freq * t + phase)
        aux = 0.5 * np.sign(main)
        x = np.stack([main, aux], -1) + 0.05 * self.rng.standard_normal((n, length, 2))
        x = torch.tensor(x, dtype=torch.float32)
        return x[:, : CFG["window"]], x[:, CFG["window"] :, 0]


class PositionalEncoding(nn.Module):
    def __init__(self, d, max_len=256):
        super().__init__()
        pos = torch.arange(max_len)[:, None]
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(1000.0) / d))
        pe = torch.zeros(max_len, d)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        d = CFG["d_model"]
        self.inp = nn.Linear(2, d)
        self.pos = PositionalEncoding(d)
        kw = {"batch_first": True} if os.environ.get("MENDED") == "1" else {}
        layer = nn.TransformerEncoderLayer(d, CFG["heads"], dim_feedforward=2 * d, dropout=0.0, norm_first=True, **kw)
        self.encoder = nn.TransformerEncoder(layer, CFG["layers"], enable_nested_tensor=False)
        self.head = nn.Linear(d, CFG["horizon"])

    def forward(self, x):
        h = self.encoder(self.pos(self.inp(x)))
        return self.head(h[:, -1])


class Trainer:
    def __init__(self):
        torch.manual_seed(CFG["seed"])
        self.model = Forecaster()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=CFG["lr"], weight_decay=0.01)
        warm = 30
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / warm))
        self.train_stream = WaveStream(1)
        self.val = WaveStream(2).batch(256)

    def step(self):
        x, y = self.train_stream.batch(CFG["batch"])
        loss = nn.functional.mse_loss(self.model(x), y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.val
        mse = nn.functional.mse_loss(self.model(x), y).item()
        self.model.train()
        return mse

    def fit(self):
        print(f"variance of target {self.val[1].var().item():.3f}")
        for i in range(1, CFG["steps"] + 1):
            loss = self.step()
            if i % 50 == 0:
                print(f"{i:4d} train {loss:.4f} val {self.validate():.4f}")


if __name__ == "__main__":
    Trainer().fit()
