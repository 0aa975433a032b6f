# EXPECT: sick
# FAULT: log_softmax over the batch axis
# ONSET: 1
# SAYS: dim|axis|batch
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)

K = 8
centroid = torch.randn(K, 20)


class Classifier(nn.Module):
    def __init__(self, hidden=(64, 32)):
        super().__init__()
        dims = (20,) + hidden
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:]))
        self.last = nn.Linear(dims[-1], K)

    def forward(self, x):
        for l in self.layers:
            x = F.elu(l(x))
        return F.log_softmax(self.last(x), dim=0)


clf = Classifier()
optimizer = torch.optim.Adam(clf.parameters(), lr=3e-3)
nll = nn.NLLLoss()
prior = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05])
for step in range(120):
    y = torch.multinomial(prior, 64, replacement=True)
    x = centroid[y] + 1.6 * torch.randn(64, 20)
    logp = clf(x)
    loss = nll(logp, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        acc = (logp.argmax(1) == y).float().mean().item()
        print(f"[{step}] nll {loss.item():.4f} acc {acc:.3f}")
