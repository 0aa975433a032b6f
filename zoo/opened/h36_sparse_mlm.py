# expect: healthy
# symptom: about 92 % of the labels are -100 and the loss is noisy, as if the labels had been lost (masked language model)
# axis: data
# cause: none
import torch
from torch import nn

torch.manual_seed(9)
V, T, MASK = 30, 32, 30
perm = torch.randperm(V)


def corpus(n):
    s = torch.randint(V, (n, T))
    s[:, 1::2] = perm[s[:, 0::2]]
    return s


def mask(tokens, p=0.08):
    hide = torch.rand(tokens.shape) < p
    hide[:, 3] |= ~hide.any(1)
    labels = torch.where(hide, tokens, torch.full_like(tokens, -100))
    return torch.where(hide, torch.full_like(tokens, MASK), tokens), labels


class Bert(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.e, self.p = nn.Embedding(V + 1, d), nn.Parameter(torch.randn(T, d))
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.n, self.o = nn.LayerNorm(d), nn.Linear(d, V)

    def forward(self, x):
        return self.o(self.n(self.enc(self.e(x) + self.p)))


model = Bert()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=700)
for step in range(700):
    x, y = mask(corpus(32))
    loss = nn.functional.cross_entropy(model(x).transpose(1, 2), y, ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 50 == 0 or step == 699:
        print(f"step {step} loss {loss.item():.4f} labels {int((y != -100).sum())} of {y.numel()}")
