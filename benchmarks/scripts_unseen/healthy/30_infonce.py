# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(81)


class Tower(nn.Module):
    def __init__(self, d_in):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_in, 64), nn.ReLU(), nn.Linear(64, 24))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


img, txt = Tower(40), Tower(28)
log_temp = nn.Parameter(torch.tensor(math.log(4.0)))
opt = torch.optim.AdamW([*img.parameters(), *txt.parameters(), log_temp], lr=3e-3)
A, B = torch.randn(8, 40), torch.randn(8, 28)
N = 64
print("log N =", round(math.log(N), 4))
for step in range(150):
    z = torch.randn(N, 8)
    a = img(z @ A + 0.3 * torch.randn(N, 40))
    b = txt(z @ B + 0.3 * torch.randn(N, 28))
    logits = a @ b.T * log_temp.exp()
    lab = torch.arange(N)
    loss = (F.cross_entropy(logits, lab) + F.cross_entropy(logits.T, lab)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(f"step {step} infonce {loss.item():.4f} T {log_temp.exp().item():.2f}")
