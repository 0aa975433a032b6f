# expect: healthy
# fault: a second model with other weights at evaluation
# note: SWA with AveragedModel, SWALR and update_bn at the end; the averaged model is in no optimizer.
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(68)
proto = torch.randn(6, 1, 12)
y = torch.randint(0, 6, (900,))
x = proto[y] * 0.8 + torch.randn(900, 1, 12)
loader = DataLoader(TensorDataset(x[:720], y[:720]), batch_size=36, shuffle=True)
model = nn.Sequential(nn.Conv1d(1, 16, 3), nn.BatchNorm1d(16), nn.ReLU(), nn.Flatten(), nn.Linear(160, 6))
swa = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
swa_sched = SWALR(opt, swa_lr=0.02, anneal_epochs=1)
for epoch in range(9):
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch >= 4:
        swa.update_parameters(model)
        swa_sched.step()
    print("epoch", epoch, loss.item())
update_bn(loader, swa)
swa.eval()
with torch.no_grad():
    print("swa val", nn.functional.cross_entropy(swa(x[720:]), y[720:]).item())
