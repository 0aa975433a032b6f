# EXPECT: sick
# FAULT: everything but the biases frozen by mistake
# ONSET: 1
# SAYS: frozen|requires_grad|freeze|not trained
import torch
from torch import nn, optim

torch.set_num_threads(1)
torch.manual_seed(42)

centers = torch.randn(10, 30)


def get_data(n):
    labels = torch.randint(0, 10, (n,))
    return centers[labels] * 0.6 + torch.randn(n, 30), labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(30, 100)
        self.l2 = nn.Linear(100, 100)
        self.l3 = nn.Linear(100, 10)

    def forward(self, x):
        x = torch.relu(self.l1(x))
        x = torch.relu(self.l2(x))
        return self.l3(x)


model = Net()

# no weight decay on biases
decay, no_decay = [], []
for name, p in model.named_parameters():
    p.requires_grad = "bias" in name
    (no_decay if "bias" in name else decay).append(p)

optimizer = optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3)
criterion = nn.CrossEntropyLoss()

train_x, train_y = get_data(3200)
for epoch in range(2):
    perm = torch.randperm(len(train_x))
    for b in range(0, len(train_x), 50):
        sel = perm[b : b + 50]
        optimizer.zero_grad()
        loss = criterion(model(train_x[sel]), train_y[sel])
        loss.backward()
        optimizer.step()
        if (b // 50) % 16 == 0:
            print("Epoch %d batch %d loss %.3f" % (epoch, b // 50, loss.item()))
vx, vy = get_data(500)
print("val acc", (model(vx).argmax(1) == vy).float().mean().item())
