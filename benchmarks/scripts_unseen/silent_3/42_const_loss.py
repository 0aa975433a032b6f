# expect: sick
# fault: the main part of the loss does not depend on the weights
# onset_step: 0
# says: (?i)(constant|does ?n.t depend|not depend|detach|no gradient|disconnected|independent of|flat|no progress|without gradient|gradient.{0,40}(only|tiny|none|zero))
# note: the reconstruction is rebuilt from .numpy() for a de-normalising helper, so its mse is a constant for autograd; only the small code penalty trains and the mse stays.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(27)
MEAN, STD = 3.0, 2.0
basis = torch.randn(4, 30)


def denormalise(t):
    return torch.from_numpy(t.detach().numpy() * STD + MEAN)


class SparseAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 8))
        self.dec = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 30))

    def forward(self, x):
        z = self.enc(x)
        return self.dec(z), z


model = SparseAE()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(160):
    x = torch.randn(64, 4) @ basis
    recon, z = model(x)
    mse = (denormalise(recon) - denormalise(x)).pow(2).mean()
    loss = mse + 1e-3 * z.abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 16 == 0:
        print(f"{step} loss {loss.item():.4f} mse {mse.item():.4f}")
print("final mse", mse.item())
