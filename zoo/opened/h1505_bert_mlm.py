# expect: healthy
# symptom: the transformer has no causal mask and gets its own tokens as labels without any shift; most labels are -100; the loss is bumpy from batch to batch and drops late
# axis: none
# mended: none
"""Masked language model (BERT style) on sentences with long-range agreement."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)

PAD, MASK, CLS, FIRST = 0, 1, 2, 3
WORDS = 30
VOCAB, LENGTH, BATCH, STEPS = FIRST + WORDS, 17, 32, 500
MASK_RATE = 0.15


def make_corpus(n):
    """A sentence is a short motif of 4 words repeated; a random tail is padding."""
    motif = torch.randint(FIRST, VOCAB, (n, 4))
    body = motif.repeat(1, 4)
    length = torch.randint(10, 17, (n, 1))
    body = torch.where(torch.arange(16)[None] < length, body, torch.full_like(body, PAD))
    return torch.cat([torch.full((n, 1), CLS), body], dim=1)


def mask_tokens(tokens):
    """80% [MASK], 10% random word, 10% unchanged; everything else is ignored by the loss."""
    inputs, labels = tokens.clone(), tokens.clone()
    chosen = (torch.rand(tokens.shape) < MASK_RATE) & (tokens >= FIRST)
    labels[~chosen] = -100
    u = torch.rand(tokens.shape)
    inputs[chosen & (u < 0.8)] = MASK
    random_word = chosen & (u >= 0.8) & (u < 0.9)
    inputs[random_word] = torch.randint(FIRST, VOCAB, (int(random_word.sum()),))
    return inputs, labels


class Bert(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(LENGTH, dim)
        nn.init.normal_(self.tok.weight, std=0.1)
        nn.init.normal_(self.pos.weight, std=0.1)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.decoder = nn.Linear(dim, VOCAB)
        self.decoder.weight = self.tok.weight

    def forward(self, tokens):
        h = self.tok(tokens) + self.pos(torch.arange(tokens.size(1)))
        h = self.encoder(h, src_key_padding_mask=tokens == PAD)
        return self.decoder(self.head(h))


def mlm_loss(model, inputs, labels):
    return F.cross_entropy(model(inputs).reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)


@torch.no_grad()
def masked_accuracy(model, tokens):
    model.eval()
    inputs, labels = mask_tokens(tokens)
    hit = model(inputs).argmax(-1) == labels
    model.train()
    return hit[labels != -100].float().mean().item()


def main():
    train, valid = make_corpus(8000), make_corpus(500)
    model = Bert()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 50, max(0.02, 1 - (s - 50) / (STEPS - 50))))
    for step in range(STEPS):
        rows = torch.randint(0, len(train), (BATCH,))
        loss = mlm_loss(model, *mask_tokens(train[rows]))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} mlm loss {loss.item():.4f}")
        if (step + 1) % 125 == 0:
            print(f"step {step} masked accuracy {masked_accuracy(model, valid):.3f}")


if __name__ == "__main__":
    main()
