# expect: healthy
# symptom: a block is frozen for 80 steps, then added to the optimizer; the loss floor is high (label smoothing)
# axis: none
"""Small BERT for insurance claims: the first block stays as it is until the rest has settled."""

import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import numpy as np
import torch
import torch.nn as nn
from transformers import BertConfig, BertForSequenceClassification

torch.set_num_threads(1)
torch.manual_seed(6)

PAD, CLS, SEP, FIRST = 0, 1, 2, 3
N_WORDS, N_TYPES, MAX_LEN = 220, 5, 24
WARM_STAGE, STEPS = 80, 300


class Claims:
    """Claims of varying length; some words are typical of one claim type."""

    def __init__(self, n, seed):
        g = np.random.default_rng(seed)
        self.y = g.choice(N_TYPES, size=n, p=[0.3, 0.25, 0.2, 0.15, 0.1])
        self.docs = []
        for label in self.y:
            size = g.integers(6, MAX_LEN - 2)
            typical = FIRST + 120 + label * 20 + g.integers(0, 20, size)
            common = FIRST + g.integers(0, 120, size)
            body = np.where(g.random(size) < 0.3, typical, common)
            self.docs.append([CLS, *body.tolist(), SEP])

    def batch(self, idx):
        docs = [self.docs[i] for i in idx]
        width = max(map(len, docs))
        ids = torch.tensor([d + [PAD] * (width - len(d)) for d in docs])
        return {"input_ids": ids, "attention_mask": (ids != PAD).long()}, torch.tensor(self.y[idx])


def build():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=FIRST + N_WORDS,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=MAX_LEN + 2,
            num_labels=N_TYPES,
            pad_token_id=PAD,
        )
    )


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    hit = 0
    for s in range(0, len(data.docs), 100):
        inputs, y = data.batch(np.arange(s, min(s + 100, len(data.docs))))
        hit += (model(**inputs).logits.argmax(1) == y).sum().item()
    model.train()
    return hit / len(data.docs)


def main():
    train, val = Claims(4000, seed=1), Claims(500, seed=2)
    model = build()
    lower = list(model.bert.encoder.layer[0].parameters())
    for p in lower:
        p.requires_grad_(False)
    upper = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(upper, lr=1e-3, weight_decay=0.01)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.2)
    g = np.random.default_rng(3)
    model.train()
    for step in range(STEPS):
        if step == WARM_STAGE:
            print(f"step {step:4d} val accuracy {accuracy(model, val):.3f}, unfreezing the first block")
            for p in lower:
                p.requires_grad_(True)
            opt.add_param_group({"params": lower, "lr": 1e-3})
        if step == 220:
            for group in opt.param_groups:
                group["lr"] *= 0.2
        inputs, y = train.batch(g.choice(len(train.docs), 32, replace=False))
        loss = loss_fn(model(**inputs).logits, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
    print(f"final loss {loss.item():.4f} val accuracy {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
