# expect: sick
# fault: labels shuffled independently of the inputs
# onset_step: 0
# says: (?i)(label|target|chance|log ?\(?C|guess|uniform|flat|plateau|not (learn|improv|fall)|uninformative|no (progress|signal|relation)|stuck|stall|shuffl)
# note: inputs and labels are permuted with two different permutations, so there is nothing to learn and the loss stays near log 10.
import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(0)
means = rng.normal(size=(10, 24)) * 1.5
y = rng.integers(0, 10, 60000)
x = means[y] + rng.normal(size=(60000, 24))

x = rng.permutation(x)
y = rng.permutation(y)

X = torch.tensor(x, dtype=torch.float32)
Y = torch.tensor(y)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
crit = nn.CrossEntropyLoss()
bs = 200
for i in range(0, 250):
    xb, yb = X[i * bs : (i + 1) * bs], Y[i * bs : (i + 1) * bs]
    loss = crit(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 25 == 0:
        print(f"batch {i}: loss = {loss.item():.4f}")
