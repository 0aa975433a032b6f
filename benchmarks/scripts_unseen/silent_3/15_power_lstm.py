# expect: sick
# fault: MSE broadcast of [N, 1] against [N]
# onset_step: 0
# says: (?i)(broadcast|shape|\[?\d*, ?1\]?.{0,20}against|size.{0,40}differ|mean of (the )?target)
# note: the model returns [N, 1], the target is [N]; mse_loss pairs every prediction with every target, so that the best answer is the mean.
import warnings
import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
torch.manual_seed(14)


class LoadForecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 20, batch_first=True)
        self.fc = nn.Linear(20, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.fc(h[:, -1])


hours = torch.arange(3000.0)
load = torch.sin(hours * 2 * torch.pi / 24) + 0.5 * torch.sin(hours * 2 * torch.pi / 168) + 0.05 * torch.randn(3000)
temp = torch.cos(hours * 2 * torch.pi / 24 + 0.5)
series = torch.stack([load, temp], 1)


def draw(n, lo=0, hi=2400):
    i = torch.randint(lo, hi, (n,))
    x = torch.stack([series[j : j + 24] for j in i])
    y = load[i + 24]
    return x, y


model = LoadForecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
criterion = nn.MSELoss()
for step in range(150):
    x, y = draw(32)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print("step", step, "mse", loss.item())
x, y = draw(300, 2450, 2950)
print("final mse", (model(x).squeeze(1) - y).pow(2).mean().item())
