# expect: sick
# fault: the same batch for ever
# onset_step: 1
# says: (?i)((same|identical|one|single|repeat\w*).{0,40}batch|batch.{0,40}(repeat|same|again|identical)|repeat)
# note: the batch is drawn once before the loop (left over from a shape check) and the line in the loop was removed; train loss goes to 0, validation gets no better.
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(64)
X = torch.randn(1500, 11)
W1, W2 = torch.randn(11, 16) / 3, torch.randn(16, 4)
y = (torch.tanh(X @ W1) @ W2 + 0.2 * torch.randn(1500, 4)).argmax(1)
train_set, val_set = random_split(TensorDataset(X, y), [1200, 300])
train_loader = DataLoader(train_set, batch_size=48, shuffle=True)
val_x, val_y = next(iter(DataLoader(val_set, batch_size=300)))

net = nn.Sequential(nn.Linear(11, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
features, target = next(iter(train_loader))
print("features", features.shape, "target", target.shape)

for epoch in range(8):
    net.train()
    for _ in range(len(train_loader)):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(features), target)
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        v = nn.functional.cross_entropy(net(val_x), val_y)
    print(f"epoch {epoch} train {loss.item():.4f} final val {v.item():.4f}")
