# expect: healthy
# fault: the loss jumps back to its start (a new fold, a new model)
# note: 4-fold cross-validation in one process; model and optimizer are made anew for every fold.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(70)


class Clf(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 24, batch_first=True)
        self.fc = nn.Linear(24, 3)

    def forward(self, x):
        return self.fc(self.rnn(x)[1][0])


t = torch.linspace(0, 6, 20)
y = torch.randint(0, 3, (480,))
f = torch.tensor([0.8, 1.6, 2.6])[y][:, None]
X = torch.stack([torch.sin(f * t + torch.rand(480, 1)), torch.cos(f * t)], 2) + 0.3 * torch.randn(480, 20, 2)
folds = torch.randperm(480).chunk(4)
scores = []
for k in range(4):
    test = folds[k]
    train = torch.cat([folds[j] for j in range(4) if j != k])
    net = Clf()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(5):
        for idx in train[torch.randperm(len(train))].split(36):
            loss = nn.functional.cross_entropy(net(X[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        scores.append((net(X[test]).argmax(1) == y[test]).float().mean().item())
    print("fold", k, "loss", round(loss.item(), 4), "acc", round(scores[-1], 3))
print("mean", sum(scores) / 4)
