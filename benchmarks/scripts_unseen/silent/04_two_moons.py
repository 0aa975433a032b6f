# EXPECT: sick
# FAULT: gradients never zeroed
# ONSET: 2
# SAYS: zero_grad|accumulat|not cleared|never cleared|stale grad
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
rng = np.random.default_rng(5)
torch.manual_seed(5)


def moons(n):
    t = rng.uniform(0, np.pi, n)
    lab = rng.integers(0, 2, n)
    x = np.where(lab == 0, np.cos(t), 1 - np.cos(t))
    y = np.where(lab == 0, np.sin(t), 0.5 - np.sin(t))
    pts = np.stack([x, y], 1) + rng.normal(0, 0.1, (n, 2))
    return torch.tensor(pts, dtype=torch.float32), torch.tensor(lab)


X, y = moons(2000)
clf = nn.Sequential(
    nn.Linear(2, 48),
    nn.ReLU(),
    nn.Linear(48, 48),
    nn.ReLU(),
    nn.Linear(48, 2),
)
optim = torch.optim.SGD(clf.parameters(), lr=0.05, momentum=0.8)
ce = nn.CrossEntropyLoss()

for step in range(120):
    idx = torch.from_numpy(rng.integers(0, 2000, 64))
    logits = clf(X[idx])
    loss = ce(logits, y[idx])
    loss.backward()
    optim.step()
    if step % 10 == 0:
        with torch.no_grad():
            acc = (clf(X).argmax(-1) == y).float().mean().item()
        print("step %d  loss %.4f  acc %.3f" % (step, loss.item(), acc))
