# expect: sick
# symptom: loss leaps at step 20, far above its start at first, and ends at chance (ln 6, 1.79)
# axis: model
# cause: dropout is raised to 0.97 from step 20 on, nearly no signal passes
# says: (?i)(dropout|drop rate)
# onset_step: 20
# fix: dropout 0.1 instead of 0.97
# mended: MENDED=1 python s25_mixer_regularised.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(26)
LATE_P = 0.1 if os.environ.get("MENDED") == "1" else 0.97


class MixerBlock(nn.Module):
    def __init__(self, tokens, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tok = nn.Sequential(nn.Linear(tokens, 24), nn.GELU(), nn.Linear(24, tokens))
        self.ch = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Dropout(0.0), nn.Linear(48, d))

    def forward(self, x):
        x = x + self.tok(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.ch(self.n2(x))


class Mixer(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp, self.drop = nn.Linear(12, d), nn.Dropout(0.0)
        self.blocks = nn.Sequential(MixerBlock(9, d), MixerBlock(9, d))
        self.out = nn.Sequential(nn.Dropout(0.0), nn.Linear(d, 6))

    def forward(self, x):
        return self.out(self.blocks(self.drop(self.inp(x))).mean(1))


g = torch.Generator().manual_seed(14)
y = torch.randint(0, 6, (64 * 240,), generator=g)
x = torch.randn(6, 9, 12, generator=g)[y] * 0.6 + torch.randn(len(y), 9, 12, generator=g)
net = Mixer()
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), 1):
    if step == 20:
        for m in net.modules():
            if isinstance(m, nn.Dropout):
                m.p = LATE_P
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0 or step in (19, 20, 21):
        print(f"step {step} loss {loss.item():.4f}")
