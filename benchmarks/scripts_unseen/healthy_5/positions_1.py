# expect: healthy
# fault: none, x is [time, batch, d] here, so x.size(0) is the sequence length and the table is cut rightly
# onset_step: none
# says: (?!)
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(40)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=256):
        super().__init__()
        pos = torch.arange(max_len).float()[:, None]
        rate = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe = torch.cat([torch.sin(pos * rate), torch.cos(pos * rate)], dim=1)
        self.register_buffer("pe", pe.unsqueeze(1))

    def forward(self, x):
        return x + self.pe[: x.size(0)]


class Forecaster(nn.Module):
    def __init__(self, feats=3, d_model=32):
        super().__init__()
        self.inp = nn.Linear(feats, d_model)
        self.pe = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead=4, dim_feedforward=64, dropout=0.0)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d_model, feats)

    def forward(self, batch):
        x = self.inp(batch.transpose(0, 1))
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(0))
        x = self.enc(self.pe(x), mask=mask)
        return self.out(x).transpose(0, 1)


def waves(n, length=21):
    t = torch.arange(length).float()
    f = 0.2 + 0.5 * torch.rand(n, 1, 3)
    p = 6.28 * torch.rand(n, 1, 3)
    a = 0.5 + torch.rand(n, 1, 3)
    x = a * torch.sin(f * t[None, :, None] + p)
    x[:, :, 2] = x[:, :, 0] * x[:, :, 1] + 0.3 * torch.cos(t * math.pi / 4)
    return x + 0.02 * torch.randn_like(x)


train, test = waves(1500), waves(200)
model = Forecaster()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
mse = nn.MSELoss()

for step in range(1, 201):
    pick = torch.randperm(len(train))[:20]
    seq = train[pick]
    pred = model(seq[:, :-1])
    loss = mse(pred, seq[:, 1:])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 40 == 0:
        model.eval()
        with torch.no_grad():
            held = mse(model(test[:, :-1]), test[:, 1:]).item()
        model.train()
        print(f"step {step:3d} mse {loss.item():.4f} held-out {held:.4f}")
