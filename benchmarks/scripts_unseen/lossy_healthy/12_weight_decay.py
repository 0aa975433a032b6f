# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(212)


class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(nn.Linear(36, 64), nn.SiLU(), nn.Linear(64, 6))
        self.d = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 36))

    def forward(self, x):
        return self.d(self.e(x))


mix = torch.randn(5, 36) / 2
ae = AE()
opt = torch.optim.AdamW(ae.parameters(), lr=4e-3, weight_decay=0.05)
for step in range(160):
    if step == 100:
        for g in opt.param_groups:
            g["weight_decay"] = 0.1
    x = torch.randn(64, 5) @ mix
    loss = nn.functional.mse_loss(ae(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, round(loss.item(), 5))
