# expect: healthy
# cause: none, warm restarts of the rate make the loss jump at each cycle, and a moving average of the weights is judged at the end
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(140)
W = torch.randn(20, 5)


def blood_tests(n):
    x = torch.randn(n, 20)
    score = x @ W / 2 + 1.5 * torch.sin(2 * x[:, :5])
    return x, (score + 0.5 * torch.randn(n, 5)).argmax(1)


x, y = blood_tests(12000)
xt, yt = blood_tests(1000)
loader = DataLoader(TensorDataset(x, y), batch_size=120, shuffle=True)
net = nn.Sequential(
    nn.Linear(20, 128),
    nn.BatchNorm1d(128),
    nn.ReLU(),
    nn.Linear(128, 128),
    nn.BatchNorm1d(128),
    nn.ReLU(),
    nn.Linear(128, 5),
)
opt = torch.optim.SGD(net.parameters(), lr=0.08, momentum=0.9, weight_decay=1e-3)
sched = CosineAnnealingWarmRestarts(opt, T_0=50, eta_min=1e-3)
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.97))
loss_fn = nn.CrossEntropyLoss()


def test(model):
    model.eval()
    with torch.no_grad():
        out = model(xt)
    model.train()
    return loss_fn(out, yt).item(), (out.argmax(1) == yt).float().mean().item()


step = 0
for epoch in range(5):
    for xb, yb in loader:
        loss = loss_fn(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        step += 1
        average.update_parameters(net)
        if step % 25 == 0:
            print(f"step {step} lr {opt.param_groups[0]['lr']:.4f} loss {loss.item():.4f}")
update_bn(loader, average)
print("last weights: loss %.4f acc %.3f" % test(net))
print("averaged:     loss %.4f acc %.3f" % test(average))
