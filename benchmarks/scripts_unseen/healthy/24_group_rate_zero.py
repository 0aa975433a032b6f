# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(87)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 128), nn.ReLU())
        self.neck = nn.Linear(128, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(torch.relu(self.neck(self.backbone(x))))


LR = {"backbone": 0.0, "neck": 1e-3, "head": 5e-3}  # lr_backbone=0 means: keep it as it is
m = Model()
groups = [{"params": getattr(m, k).parameters(), "lr": v, "name": k} for k, v in LR.items()]
opt = torch.optim.Adam(groups)
mu = torch.randn(3, 20) * 0.6
for it in range(120):
    y = torch.randint(0, 3, (32,))
    loss = nn.functional.cross_entropy(m(mu[y] + torch.randn(32, 20)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(it, "loss", round(loss.item(), 4), {g["name"]: g["lr"] for g in opt.param_groups})
