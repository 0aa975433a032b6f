# expect: sick
# symptom: training and validation loss go to almost zero within a few epochs, but the greedily decoded sequences are nearly all wrong
# axis: model
# cause: nn.Transformer is called without tgt_mask: the decoder is not causal, it sees the tokens that it shall predict and only copies the next one
# says: tgt_mask|target mask|causal|look[- ]?ahead|subsequent|(see|peek|attend|look|leak|cheat)\w*.{0,60}(future|ahead|next token|target|later (token|position)|answer)|future (token|position|target)
# onset_step: 0
# fix: pass tgt_mask=nn.Transformer.generate_square_subsequent_mask(T) to the decoder
# mended: the decoder gets the square subsequent mask
import os
from types import SimpleNamespace

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

PAD, BOS, EOS, OFFSET = 0, 1, 2, 3
cfg = SimpleNamespace(
    n_symbols=10,
    min_len=4,
    max_len=7,
    dim=48,
    heads=4,
    layers=1,
    ff=96,
    batch=48,
    epochs=6,
    n_train=2880,
    lr=3e-3,
    seed=5,
)


class SortDataset(Dataset):
    """A list of digits and the same list in ascending order."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.pairs = []
        for _ in range(n):
            k = int(torch.randint(cfg.min_len, cfg.max_len + 1, (1,), generator=g))
            src = torch.randint(0, cfg.n_symbols, (k,), generator=g) + OFFSET
            self.pairs.append((src, src.sort().values))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def collate(batch):
    bos, eos = torch.tensor([BOS]), torch.tensor([EOS])
    src = nn.utils.rnn.pad_sequence([torch.cat([s, eos]) for s, _ in batch], batch_first=True, padding_value=PAD)
    tgt = nn.utils.rnn.pad_sequence([torch.cat([bos, t, eos]) for _, t in batch], batch_first=True, padding_value=PAD)
    return src, tgt


class Seq2Seq(nn.Module):
    def __init__(self, vocab, dim, heads, layers, ff, max_len):
        super().__init__()
        self.src_emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, dim)
        self.transformer = nn.Transformer(dim, heads, layers, layers, ff, dropout=0.0, batch_first=True)
        self.generator = nn.Linear(dim, vocab)

    def embed(self, table, ids):
        return table(ids) + self.pos(torch.arange(ids.size(1)))

    def forward(self, src, tgt, tgt_mask=None):
        out = self.transformer(
            self.embed(self.src_emb, src),
            self.embed(self.tgt_emb, tgt),
            tgt_mask=tgt_mask,
            src_key_padding_mask=src == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return self.generator(out)


def make_tgt_mask(t):
    return nn.Transformer.generate_square_subsequent_mask(t) if MENDED else None


def batch_loss(model, criterion, src, tgt):
    tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]
    logits = model(src, tgt_in, tgt_mask=make_tgt_mask(tgt_in.size(1)))
    return criterion(logits.flatten(0, 1), tgt_out.flatten())


@torch.no_grad()
def greedy_decode(model, src, max_len):
    ys = torch.full((len(src), 1), BOS)
    for _ in range(max_len):
        logits = model(src, ys, tgt_mask=make_tgt_mask(ys.size(1)))
        ys = torch.cat([ys, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ys[:, 1:]


@torch.no_grad()
def evaluate(model, criterion, loader):
    model.eval()
    total, exact = 0.0, 0
    for src, tgt in loader:
        total += batch_loss(model, criterion, src, tgt).item() * len(src)
        hyp = greedy_decode(model, src, tgt.size(1) - 1)
        ref = tgt[:, 1:]
        exact += ((hyp == ref) | (ref == PAD)).all(1).sum().item()
    model.train()
    return total / len(loader.dataset), exact / len(loader.dataset)


def main():
    torch.manual_seed(cfg.seed)
    train_loader = DataLoader(SortDataset(cfg.n_train, 1), cfg.batch, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(SortDataset(200, 2), 100, collate_fn=collate)
    model = Seq2Seq(cfg.n_symbols + OFFSET, cfg.dim, cfg.heads, cfg.layers, cfg.ff, cfg.max_len + 2)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=60)
    step = 0
    for epoch in range(cfg.epochs):
        for src, tgt in train_loader:
            loss = batch_loss(model, criterion, src, tgt)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
        val_loss, exact = evaluate(model, criterion, val_loader)
        print(f"epoch {epoch} val loss {val_loss:.4f} greedy exact match {exact:.3f}", flush=True)


if __name__ == "__main__":
    main()
