# EXPECT: sick
# FAULT: the same batch again and again
# ONSET: 2
# SAYS: same batch|repeat|identical|batch
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(18)

protos = torch.randn(6, 40)
y = torch.randint(0, 6, (2400,))
X = protos[y] * 0.5 + torch.randn(2400, 40)
train_dl = DataLoader(TensorDataset(X[:2000], y[:2000]), batch_size=40)
val_dl = DataLoader(TensorDataset(X[2000:], y[2000:]), batch_size=200)

model = nn.Sequential(nn.Linear(40, 128), nn.LeakyReLU(), nn.Linear(128, 6))
opt = torch.optim.RMSprop(model.parameters(), lr=5e-4)

max_steps = 100
for global_step in range(max_steps):
    xb, yb = next(iter(train_dl))
    loss = nn.functional.cross_entropy(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (global_step + 1) % 20 == 0:
        model.eval()
        with torch.no_grad():
            vl = torch.stack([nn.functional.cross_entropy(model(a), b) for a, b in val_dl]).mean()
        model.train()
        print(f"{global_step + 1}\ttrain {loss.item():.4f}\tval {vl.item():.4f}")
