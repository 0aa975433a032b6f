# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(311)
f = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 8))
opt = torch.optim.Adam(f.parameters(), lr=1e-3)
mu = torch.randn(5, 12)
with torch.autograd.set_detect_anomaly(True):
    for step in range(60):
        ya, yb = torch.randint(0, 5, (24,)), torch.randint(0, 5, (24,))
        a, b = mu[ya] + 0.3 * torch.randn(24, 12), mu[yb] + 0.3 * torch.randn(24, 12)
        d = (((f(a) - f(b)) ** 2).sum(1) + 1e-6).sqrt()
        same = (ya == yb).float()
        loss = (same * d**2 + (1 - same) * torch.relu(2 - d) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(f.parameters(), 1.0, error_if_nonfinite=True)
        opt.step()
        if step % 6 == 0:
            print(step, loss.item())
