# EXPECT: sick
# FAULT: targets normalised away, all zero
# ONSET: 1
# SAYS: target|zero|constant|label
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(40)


def standardise(t, eps=1e-6):
    mean = t.mean(dim=-1, keepdim=True)
    std = t.std(dim=-1, keepdim=True, unbiased=False)
    return (t - mean) / (std + eps)


N = 3000
temps = torch.randn(N, 8) * 5 + 20
load = (temps[:, :4].sum(1) - 0.2 * temps[:, 5] ** 2).unsqueeze(-1)

X = standardise(temps)
Y = standardise(load)

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
huber = nn.HuberLoss()
for i in range(120):
    b = torch.randint(0, N, (64,))
    loss = huber(model(X[b]), Y[b])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 15 == 0:
        print("iter %d, huber %.6f" % (i, loss.item()))
