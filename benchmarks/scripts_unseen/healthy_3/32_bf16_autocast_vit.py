# expect: healthy
# fault: half precision
# note: bf16 autocast on the CPU with float32 weights and no scaler: right as it is.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(52)


class Vit(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.pos = nn.Parameter(torch.zeros(1, 9, d))
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 64, 0.1, "gelu", batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.head = nn.Linear(d, 6)

    def forward(self, x):
        return self.head(self.enc(self.patch(x).flatten(2).mT + self.pos).mean(1))


proto = torch.randn(6, 3, 12, 12)
net = Vit()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(130):
    y = torch.randint(0, 6, (32,))
    x = 0.7 * proto[y] + torch.randn(32, 3, 12, 12)
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 13 == 0:
        print(f"{step} {loss.item():.4f}")
