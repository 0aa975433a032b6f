# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(29)


class ConvNet(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.c = nn.Linear(32, k)

    def forward(self, x):
        return self.c(self.f(x).flatten(1))


K = 10
colour = torch.randn(K, 3, 1, 1)
model = ConvNet(K)
crit = nn.CrossEntropyLoss(label_smoothing=0.2)  # floor is well above 0
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
for step in range(110):
    y = torch.randint(0, K, (40,))
    x = colour[y] + 0.7 * torch.randn(40, 3, 10, 10)
    loss = crit(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"{step:03d} {loss.item():.4f}")
