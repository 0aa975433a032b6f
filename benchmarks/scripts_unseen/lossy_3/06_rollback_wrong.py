# expect: sick
# fault: wrong state restored in mid run (the initial weights)
# onset_step: 150
# says: (?i)(loss|gradient|restor|load|weights?|progress|spike|diverg|reset|state)
# note: at step 150 "the best weights" are loaded, but best was filled before training and never again; all progress is gone.
import copy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(6)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(60, 32)
        self.enc = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        return self.out(self.enc(self.emb(x)).mean(1))


def batch(n=32):
    y = torch.randint(0, 5, (n,))
    x = torch.randint(0, 60, (n, 12))
    x[:, :3] = torch.randint(0, 12, (n, 3)) * 5 + y[:, None]
    return x, y


model = Encoder()
best = copy.deepcopy(model.state_dict())
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(230):
    if step == 150:
        model.load_state_dict(best)
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"{step} {loss.item():.4f}")
