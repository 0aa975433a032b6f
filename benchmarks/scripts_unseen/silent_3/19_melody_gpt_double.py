# expect: sick
# fault: labels shifted twice
# onset_step: 0
# says: (?i)(shift|two (tokens|positions|ahead)|off by one|align|token ?\+ ?2|next.token)
# note: the data set already gives y = x shifted by one, and lm_loss() shifts again, so the model is taught the token after the next.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)
V, T = 40, 32
nexts = torch.stack([torch.randperm(V)[:3] for _ in range(V)])


class MelodyDataset(torch.utils.data.Dataset):
    def __init__(self, n):
        seq = torch.randint(0, V, (n, 1))
        for _ in range(T):
            seq = torch.cat([seq, nexts[seq[:, -1], torch.randint(0, 3, (n,))][:, None]], 1)
        self.seq = seq

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return {"input_ids": self.seq[i, :-1], "labels": self.seq[i, 1:]}


class MelodyModel(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(T, d)
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        )
        self.lm_head = nn.Linear(d, V)

    def forward(self, input_ids):
        t = input_ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        h = self.tok(input_ids) + self.pos(torch.arange(t))
        return self.lm_head(self.blocks(h, mask=mask, is_causal=True))


def lm_loss(logits, labels):
    logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.reshape(-1, V), labels.reshape(-1))


loader = torch.utils.data.DataLoader(MelodyDataset(1600), batch_size=20, shuffle=True)
model = MelodyModel()
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
step = 0
for epoch in range(2):
    for batch in loader:
        loss = lm_loss(model(batch["input_ids"]), batch["labels"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        step += 1
b = next(iter(loader))
print("final next-token loss", F.cross_entropy(model(b["input_ids"]).flatten(0, 1), b["labels"].flatten()).item())
