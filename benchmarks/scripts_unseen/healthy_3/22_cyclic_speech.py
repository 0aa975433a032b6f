# expect: healthy
# fault: a rate that climbs again and again, loss rising with it
# note: CyclicLR triangular between 0.005 and 0.15 by plan; the loss swings with the cycles.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(41)


class KeywordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(12, 24, 5, 2),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Conv1d(24, 24, 5, 2),
            nn.BatchNorm1d(24),
            nn.ReLU(),
        )
        self.fc = nn.Linear(24, 8)

    def forward(self, x):
        return self.fc(self.conv(x).mean(2))


words = torch.randn(8, 12, 30)
model = KeywordNet()
opt = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
sched = torch.optim.lr_scheduler.CyclicLR(opt, base_lr=0.005, max_lr=0.15, step_size_up=25)
for step in range(250):
    y = torch.randint(0, 8, (32,))
    x = torch.roll(words[y], int(torch.randint(-4, 5, ())), 2) + 1.5 * torch.randn(32, 12, 30)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 25 == 0:
        print(f"{step} lr {sched.get_last_lr()[0]:.4f} loss {loss.item():.4f}")
