# EXPECT: sick
# FAULT: labels shifted twice
# ONSET: 1
# SAYS: shift
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)
torch.manual_seed(6)
V, T, D = 40, 24, 48

table = torch.randperm(V)


class Corpus(Dataset):
    def __init__(self, n=1200):
        s = torch.zeros(n, T + 1, dtype=torch.long)
        s[:, 0] = torch.randint(0, V, (n,))
        for t in range(T):
            jump = torch.randint(0, V, (n,))
            s[:, t + 1] = torch.where(torch.rand(n) < 0.65, table[s[:, t]], jump)
        self.s = s

    def __len__(self):
        return len(self.s)

    def __getitem__(self, i):
        # inputs and next-token targets
        return {"input_ids": self.s[i, :-1], "labels": self.s[i, 1:]}


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(T, D)
        layer = nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.h = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.lm_head = nn.Linear(D, V, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(T), persistent=False)

    def forward(self, input_ids, labels=None):
        n = input_ids.shape[1]
        x = self.wte(input_ids) + self.wpe.weight[:n]
        logits = self.lm_head(self.h(x, mask=self.mask[:n, :n], is_causal=True))
        loss = None
        if labels is not None:
            shift_logits = logits[..., :-1, :].contiguous()
            shift_labels = labels[..., 1:].contiguous()
            loss = F.cross_entropy(shift_logits.view(-1, V), shift_labels.view(-1))
        return loss, logits


model = CausalLM()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
loader = DataLoader(Corpus(), batch_size=12, shuffle=True)
for step, batch in enumerate(loader, 1):
    loss, _ = model(**batch)
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(f"step {step:4d} train_loss {loss.item():.4f}")
