# expect: healthy
# fault: batch size 1, a wildly noisy loss
# note: on-line learning of clicks, one event per step; the single losses jump between 0.01 and 4, the running mean falls.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)
ADS, D = 20, 8
quality = torch.randn(ADS) * 1.5
model = nn.Sequential(nn.Linear(D + ADS, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
taste = torch.randn(D)
mean = 0.69
for event in range(300):
    ad = int(torch.randint(0, ADS, ()))
    user = torch.randn(D)
    click = (torch.rand(()) < torch.sigmoid(2 * (user @ taste) + quality[ad])).float()
    x = torch.cat([user, nn.functional.one_hot(torch.tensor(ad), ADS).float()])[None]
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).view(()), click)
    opt.zero_grad()
    loss.backward()
    opt.step()
    mean += 0.02 * (loss.item() - mean)
    if event % 30 == 0:
        print(event, f"last {loss.item():.3f} running {mean:.3f}")
