# expect: sick
# fault: per-epoch scheduler stepped on each batch
# onset_step: 10
# says: (?i)(schedul|learning.?rate|\blr\b|rate (has )?(fell|collaps|decay|too|dropp)|step_size|too (small|fast|early))
# note: StepLR(step_size=5 epochs, gamma=0.1) is stepped inside the batch loop and the rate is gone after some thirty batches.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
protos = torch.randn(8, 1, 12, 12)
y = torch.randint(0, 8, (1600,))
x = protos[y] * 0.5 + torch.randn(1600, 1, 12, 12)
train_loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 24, 3)
        self.fc1 = nn.Linear(24 * 16, 48)
        self.fc2 = nn.Linear(48, 8)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), dim=1)


def train(model, optimizer, scheduler, epoch):
    model.train()
    for i, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if i % 10 == 0:
            print(f"Train Epoch: {epoch} [{i}/{len(train_loader)}]\tLoss: {loss.item():.5f}")


model = SmallCNN()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
scheduler = StepLR(optimizer, step_size=5, gamma=0.1)
for epoch in range(1, 7):
    train(model, optimizer, scheduler, epoch)
