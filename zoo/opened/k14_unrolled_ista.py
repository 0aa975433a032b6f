# expect: healthy
# symptom: one module stands several times in the list of stages
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(37)
M, N, STAGES = 20, 50, 8
DICT = F.normalize(torch.randn(M, N), dim=0)


def sparse_batch(n, k=4):
    code = torch.zeros(n, N)
    idx = torch.rand(n, N).topk(k, 1).indices
    code.scatter_(1, idx, torch.randn(n, k).sign() * (0.5 + torch.rand(n, k)))
    return code @ DICT.T + 0.01 * torch.randn(n, M), code


class Stage(nn.Module):
    """z <- soft(W y + S z, theta); Gregor and LeCun 2010, eq. 7."""

    def __init__(self):
        super().__init__()
        lip = torch.linalg.matrix_norm(DICT, 2) ** 2
        self.W = nn.Parameter(DICT.T / lip)
        self.S = nn.Parameter(torch.eye(N) - DICT.T @ DICT / lip)
        self.theta = nn.Parameter(torch.full((N,), 0.05))

    def forward(self, z, y):
        u = y @ self.W.T + z @ self.S.T
        return u.sign() * F.relu(u.abs() - self.theta)


class LISTA(nn.Module):
    def __init__(self, n_stages, tied=True):
        super().__init__()
        if tied:
            self.stages = nn.ModuleList([Stage()] * n_stages)
        else:
            self.stages = nn.ModuleList([Stage() for _ in range(n_stages)])

    def forward(self, y):
        z = y.new_zeros(len(y), N)
        for stage in self.stages:
            z = stage(z, y)
        return z


net = LISTA(STAGES, tied=True)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
y_val, z_val = sparse_batch(500)
for step in range(301):
    y, z = sparse_batch(64)
    loss = F.mse_loss(net(y), z)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 50 == 0:
        with torch.no_grad():
            nmse = ((net(y_val) - z_val) ** 2).sum() / (z_val**2).sum()
        print(f"step {step} loss {loss.item():.5f} val nmse {10 * nmse.log10():.2f} dB")
