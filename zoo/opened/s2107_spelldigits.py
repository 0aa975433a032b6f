# expect: sick
# symptom: training and validation loss fall nicely, but generated answers never stop and run on to the length limit; exact match is near 0
# axis: data
# cause: pad token is the EOS token and the collator sets every pad id in the labels to -100, so the real end-of-sequence token is masked out of the loss and the model never learns to stop
# says: (eos|end[- ]of[- ](sequence|text|sentence)|stop token|end token).*(mask|-100|ignor|exclud|never (learn|train|supervis)|not (learn|train|supervis|in the loss)|pad)|(mask|-100|ignor|exclud|pad).*(eos|end[- ]of[- ](sequence|text|sentence)|stop token|end token)
# onset_step: 0
# fix: mask labels by the attention mask (attention_mask == 0), or use a pad token of its own, so that the first EOS stays in the labels
# mended: yes
"""Fine-tune a tiny causal LM to read digit strings aloud: "408" -> "four zero eight"."""

import os
import random
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@dataclass
class Config:
    seed: int = 11
    train_size: int = 4000
    val_size: int = 48
    batch_size: int = 32
    max_steps: int = 360
    lr: float = 3e-3
    weight_decay: float = 0.01
    max_new_tokens: int = 12
    log_every: int = 30


class WordTokenizer:
    def __init__(self):
        specials = ["<|endoftext|>", "read", ":", "->"]
        self.vocab = specials + [str(d) for d in range(10)] + WORDS
        self.index = {w: i for i, w in enumerate(self.vocab)}
        self.eos_token_id = 0
        self.pad_token_id = self.eos_token_id

    def encode(self, words):
        return [self.index[w] for w in words]

    def decode(self, ids):
        return " ".join(self.vocab[i] for i in ids)


class ReadAloud(Dataset):
    def __init__(self, n, tok, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            digits = [rng.randrange(10) for _ in range(rng.randint(1, 6))]
            prompt = tok.encode(["read", ":"] + [str(d) for d in digits] + ["->"])
            answer = tok.encode([WORDS[d] for d in digits]) + [tok.eos_token_id]
            self.rows.append((prompt, answer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Collator:
    def __init__(self, tok):
        self.tok = tok

    def __call__(self, rows):
        width = max(len(p) + len(a) for p, a in rows)
        ids = torch.full((len(rows), width), self.tok.pad_token_id)
        attn = torch.zeros(len(rows), width, dtype=torch.long)
        prompt_len = torch.tensor([len(p) for p, _ in rows])
        for i, (p, a) in enumerate(rows):
            n = len(p) + len(a)
            ids[i, :n] = torch.tensor(p + a)
            attn[i, :n] = 1
        labels = ids.clone()
        if MENDED:
            labels[attn == 0] = -100
        else:
            labels[labels == self.tok.pad_token_id] = -100
        labels[torch.arange(width)[None, :] < prompt_len[:, None]] = -100
        return {"input_ids": ids, "attention_mask": attn, "labels": labels}


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = [model(**b).loss.item() for b in loader]
    model.train()
    return sum(losses) / len(losses)


@torch.no_grad()
def exact_match(model, rows, tok, cfg):
    model.eval()
    hits, total_len, example = 0, 0, ""
    for prompt, answer in rows:
        out = []
        for _ in range(cfg.max_new_tokens):
            nxt = model(input_ids=torch.tensor([prompt + out])).logits[0, -1].argmax().item()
            out.append(nxt)
            if nxt == tok.eos_token_id:
                break
        hits += out == answer
        total_len += len(out)
        example = f"{tok.decode(prompt)} {tok.decode(out)}"
    model.train()
    return hits / len(rows), total_len / len(rows), example


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    tok = WordTokenizer()
    train = ReadAloud(cfg.train_size, tok, cfg.seed)
    val = ReadAloud(cfg.val_size, tok, cfg.seed + 1)
    coll = Collator(tok)
    loader = DataLoader(train, batch_size=cfg.batch_size, shuffle=True, collate_fn=coll, drop_last=True)
    val_loader = DataLoader(val, batch_size=cfg.batch_size, collate_fn=coll)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tok.vocab),
            n_positions=32,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=tok.eos_token_id,
            eos_token_id=tok.eos_token_id,
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    sched = get_cosine_schedule_with_warmup(opt, 30, cfg.max_steps)
    step = 0
    while step < cfg.max_steps:
        for batch in loader:
            loss = model(**batch).loss
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % cfg.log_every == 0:
                print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
            step += 1
            if step % 120 == 0:
                print(f"step {step:4d} val_loss {validate(model, val_loader):.4f}")
            if step >= cfg.max_steps:
                break
    em, mean_len, example = exact_match(model, val.rows, tok, cfg)
    print(f"final val_loss {validate(model, val_loader):.4f} exact_match {em:.3f} mean_generated {mean_len:.1f}")
    print("sample:", example)


if __name__ == "__main__":
    main()
