# expect: sick
# fault: sigmoid twice
# onset_step: 0
# says: (?i)(sigmoid|probabilit|logits)
# note: forward() returns torch.sigmoid(...) and the loss is BCEWithLogits; probabilities stay in 0.5 to 0.73, gradients are squashed, the loss cannot come near 0.
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(30)


class FraudNet(nn.Module):
    def __init__(self, n_num, n_cat):
        super().__init__()
        self.emb = nn.Embedding(n_cat, 6)
        self.body = nn.Sequential(nn.Linear(n_num + 6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.score = nn.Linear(16, 1)

    def forward(self, num, cat):
        h = self.body(torch.cat([num, self.emb(cat)], dim=1))
        return torch.sigmoid(self.score(h)).squeeze(1)


num = torch.randn(3000, 5)
cat = torch.randint(0, 10, (3000,))
risk = torch.randn(10)
y = ((num[:, 0] * 1.5 + num[:, 1] * num[:, 2] + risk[cat] - 1.2) > 0).float()
loader = DataLoader(TensorDataset(num, cat, y), batch_size=100, shuffle=True)
model = FraudNet(5, 10)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    total = 0
    for a, b, t in loader:
        loss = F.binary_cross_entropy_with_logits(model(a, b), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(t)
    print(f"epoch {epoch} final loss {total / len(y):.4f} (fraud rate {y.mean():.2f})")
