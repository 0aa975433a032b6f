# expect: sick
# symptom: loss leaps from 0.16 to 9 and more at step 121 and stays there; a batch full of padding was seen at step 117
# axis: schedule
# cause: the schedule multiplies the rate by 300 from step 120 on (1-based milestone factor read as percent); the padded batch of step 117 has weight 0 and is innocent
# says: (?i)((rate|lr|schedul).{0,60}(jump|leap|x ?\d|times|multipl|ris|rais|high|increase|milestone)|(jump|leap).{0,40}(rate|lr))
# onset_step: 120
# fix: factor 0.3 at the milestone instead of 300
# mended: MENDED=1 python s38_story_gpt.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(41)
V, T, PAD = 20, 14, 0
PLAN = {119: 0.3 if os.environ.get("MENDED") == "1" else 300}


class Stories(Dataset):
    def __init__(self, n, batch=32):
        g = torch.Generator().manual_seed(25)
        a, d = torch.randint(0, V - 1, (n, 1), generator=g), torch.randint(1, 4, (n, 1), generator=g)
        self.ids = 1 + (a + d * torch.arange(T + 1)) % (V - 1)
        length = torch.randint(6, T + 2, (n, 1), generator=g)
        length[116 * batch : 117 * batch] = 0
        self.ids[torch.arange(T + 1)[None] >= length] = PAD

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i, :-1], self.ids[i, 1:]


class Decoder(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Parameter(0.02 * torch.randn(T, d))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, V)
        self.register_buffer("causal", torch.ones(T, T).triu(1).bool())

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for layer in self.layers:
            x = layer(x, src_mask=self.causal)
        return self.head(self.ln(x))


net = Decoder()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1.0 if s < 119 else PLAN[119])
for step, (x, y) in enumerate(DataLoader(Stories(32 * 240), batch_size=32), 1):
    w = (y != PAD).float()
    nll = nn.functional.cross_entropy(net(x).transpose(1, 2), y, reduction="none")
    loss = (nll * w).sum() / w.sum().clamp(min=1)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 20 == 0 or 114 < step < 126:
        print(f"step {step} loss {loss.item():.4f}")
