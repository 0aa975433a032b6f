# EXPECT: sick
# FAULT: softmax over a single unit
# ONSET: 1
# SAYS: softmax|constant|single
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(12)


class ChurnModel(nn.Module):
    def __init__(self, n_num=10, n_cat=20):
        super().__init__()
        self.cat = nn.Embedding(n_cat, 8)
        self.fc1 = nn.Linear(n_num + 8, 40)
        self.fc2 = nn.Linear(40, 1)
        self.act = nn.ReLU()

    def forward(self, num, cat):
        h = torch.cat([num, self.cat(cat)], dim=-1)
        h = self.act(self.fc1(h))
        return torch.softmax(self.fc2(h), dim=-1)


w = torch.randn(10)
bias_by_cat = torch.randn(20)
N = 3000
num, cat = torch.randn(N, 10), torch.randint(0, 20, (N,))
churn = (torch.sigmoid(2 * (num @ w) + bias_by_cat[cat] - 1) > torch.rand(N)).float()

model = ChurnModel()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
bce = nn.BCELoss()
BATCH = 60
for epoch in range(2):
    perm = torch.randperm(N)
    epoch_loss = 0
    for j in range(N // BATCH):
        ix = perm[j * BATCH : (j + 1) * BATCH]
        p = model(num[ix], cat[ix]).squeeze(-1)
        loss = bce(p, churn[ix])
        opt.zero_grad()
        loss.backward()
        opt.step()
        epoch_loss += loss.item()
        if j % 10 == 0:
            print("  batch", j, "bce", round(loss.item(), 4))
    print("epoch", epoch, "loss", epoch_loss / (N // BATCH))
