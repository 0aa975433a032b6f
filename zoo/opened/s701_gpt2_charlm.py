# expect: sick
# symptom: training loss falls steadily, but the samples are gibberish and next-character accuracy stays near chance
# axis: loss
# cause: the dataset already gives labels shifted by one and GPT2LMHeadModel shifts them once more inside, so the model learns to predict the character after the next one
# says: (double|twice|two times|2x|already|again|second|extra|both)\W.{0,60}(shift|offset)|(shift|offset)\w*.{0,60}(twice|double|two times|again|already|second time|once more|by two|by 2)|double.?(label.?)?shift|(two|2) (tokens?|positions?|steps?|characters?) (ahead|later)|(token|t|position)\s*\+\s*2|off.by.one.{0,40}(label|target)|(label|target)s?.{0,40}off.by.one
# onset_step: 1
# fix: pass the unshifted input ids as labels (labels=input_ids), as the model shifts internally
# mended: with MENDED=1 the dataset returns the same ids as input and as labels
import argparse
import os
import random

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

SUBJ = ["the old miller", "a young fox", "my grey aunt", "the captain", "some pilgrim"]
VERB = ["quietly buys", "never sells", "often paints", "gladly mends", "slowly carries"]
OBJ = ["seven copper kettles", "a velvet jacket", "the broken harp", "ripe plums", "two wax candles"]
PLACE = ["by the river", "under the bridge", "near zurich", "in the attic", "on fridays"]


def make_text(n_sentences, rng):
    out = []
    for _ in range(n_sentences):
        out.append(" ".join([rng.choice(SUBJ), rng.choice(VERB), rng.choice(OBJ), rng.choice(PLACE)]) + ". ")
    return "".join(out)


class CharBlocks(Dataset):
    """Cuts a long id sequence into blocks for language modelling."""

    def __init__(self, ids, block):
        self.ids = ids
        self.block = block

    def __len__(self):
        return (len(self.ids) - 1) // self.block

    def __getitem__(self, i):
        chunk = self.ids[i * self.block : i * self.block + self.block + 1]
        x = chunk[:-1].clone()
        y = chunk[1:].clone()
        if MENDED:
            y = x.clone()
        return {"input_ids": x, "labels": y}


@torch.no_grad()
def next_char_accuracy(model, ids, block, n=16):
    model.eval()
    hit = total = 0
    for i in range(n):
        seq = ids[i * block : (i + 1) * block].unsqueeze(0)
        logits = model(input_ids=seq).logits
        pred = logits[:, :-1].argmax(-1)
        hit += (pred == seq[:, 1:]).sum().item()
        total += pred.numel()
    model.train()
    return hit / total


@torch.no_grad()
def sample(model, prompt, stoi, itos, n=60):
    model.eval()
    ids = torch.tensor([[stoi[c] for c in prompt]])
    for _ in range(n):
        nxt = model(input_ids=ids[:, -64:]).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, nxt], 1)
    model.train()
    return "".join(itos[i] for i in ids[0].tolist())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=360)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--block", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()

    torch.manual_seed(7)
    rng = random.Random(7)
    text = make_text(4000, rng)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([stoi[c] for c in text])
    split = int(0.95 * len(ids))
    train, val = ids[:split], ids[split:]

    cfg = GPT2Config(
        vocab_size=len(chars),
        n_positions=args.block,
        n_embd=80,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    loader = DataLoader(CharBlocks(train, args.block), batch_size=args.batch, shuffle=True, drop_last=True)

    step = 0
    while step < args.steps:
        for batch in loader:
            out = model(**batch)
            opt.zero_grad()
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 50 == 0:
                acc = next_char_accuracy(model, val, args.block)
                print(f"step {step:4d}  loss {out.loss.item():.4f}  val next-char acc {acc:.3f}")
            if step >= args.steps:
                break
    print("sample:", repr(sample(model, "the captain ", stoi, list(chars))))


if __name__ == "__main__":
    main()
