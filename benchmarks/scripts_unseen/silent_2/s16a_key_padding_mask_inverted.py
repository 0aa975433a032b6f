# expect: sick
# fault: key padding mask with the wrong polarity
# onset_step: 0
# says: (?i)(mask|polarity|invert|padding|attend|attention)
# note: src_key_padding_mask takes True for padding but is given True for the real tokens, so attention sees only the padding.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, MAXLEN, CLASSES = 64, 20, 4


def sample(n):
    lens = torch.randint(5, MAXLEN - 1, (n,))
    ids = torch.randint(1, VOCAB, (n, MAXLEN))
    mask = torch.arange(MAXLEN)[None, :] < lens[:, None]
    ids = ids * mask
    labels = (ids[:, 1:].float().sum(1) / lens / 8).long().clamp(2, 5) - 2
    return ids, mask, labels


class TextClassifier(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(MAXLEN, d)
        layer = nn.TransformerEncoderLayer(d_model=d, nhead=4, dim_feedforward=96, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.fc = nn.Linear(d, CLASSES)

    def forward(self, ids, attention_mask):
        h = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        h = self.encoder(h, src_key_padding_mask=attention_mask)
        return self.fc(h[:, 0])


model = TextClassifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(160):
    ids, mask, y = sample(32)
    loss = F.cross_entropy(model(ids, mask), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step={step} loss={loss.item():.4f}")
