# expect: healthy
# symptom: most parameters never move, the adapters' down matrices have zero gradient at the first step and the loss is flat for the first steps (resembles a frozen model)
# axis: model
# cause: healthy: low-rank adapters on a frozen base; the up matrices start at zero, so the down matrices get their first gradient at step 2, and the rate warms up over 40 steps
# says: none
# onset_step: none
# fix: none
# mended: none
import random

import torch
import torch.nn as nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

torch.set_num_threads(1)
random.seed(19)
torch.manual_seed(19)

SUBJECTS, WORDS = 16, 12
VOCAB, LENGTH = 5 + SUBJECTS * WORDS, 22
PAD, CLS, MASK = 0, 1, 2


def texts(n):
    ids, subject = torch.zeros(n, LENGTH, dtype=torch.long), []
    for i in range(n):
        main, other = random.sample(range(SUBJECTS), 2)
        length = random.randint(12, LENGTH - 1)
        row = [5 + (main if random.random() < 0.7 else other) * WORDS + random.randrange(WORDS) for _ in range(length)]
        ids[i, : length + 1] = torch.tensor([CLS] + row)
        subject.append(main)
    return ids, torch.tensor(subject)


class Adapted(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.down.weight, std=1 / rank)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


def adapt(model):
    for p in model.parameters():
        p.requires_grad_(False)
    for layer in model.bert.encoder.layer:
        att = layer.attention.self
        att.query, att.value = Adapted(att.query), Adapted(att.value)
        layer.output.dense = Adapted(layer.output.dense)
    for p in model.classifier.parameters():
        p.requires_grad_(True)
    return [p for p in model.parameters() if p.requires_grad]


def pretrain(config, ids, steps):
    model = BertForMaskedLM(config)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        batch = ids[torch.randint(0, len(ids), (32,))]
        hidden = (torch.rand(batch.shape) < 0.2) & (batch > CLS)
        out = model(
            input_ids=batch.masked_fill(hidden, MASK),
            attention_mask=(batch != PAD).long(),
            labels=batch.masked_fill(~hidden, -100),
        )
        opt.zero_grad()
        out.loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"mlm step {step} loss {out.loss.item():.4f}", flush=True)
    return model


@torch.no_grad()
def accuracy(model, ids, labels):
    model.eval()
    pred = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits.argmax(1)
    model.train()
    return (pred == labels).float().mean().item()


def main():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        num_labels=4,
        pad_token_id=PAD,
    )
    corpus, _ = texts(5000)
    pretrained = pretrain(config, corpus, steps=300)
    model = BertForSequenceClassification(config)
    model.bert.load_state_dict(pretrained.bert.state_dict(), strict=False)
    trainable = adapt(model)
    total = sum(p.numel() for p in model.parameters())
    print(f"trainable {sum(p.numel() for p in trainable)} of {total}")

    team = torch.tensor([random.randrange(4) for _ in range(SUBJECTS)])
    ids, subject = texts(1600)
    test_ids, test_subject = texts(400)
    opt = torch.optim.AdamW(trainable, lr=4e-3, weight_decay=0.0)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, s / 40))
    model.train()
    for step in range(1, 301):
        pick = torch.randint(0, len(ids), (32,))
        loss = model(input_ids=ids[pick], attention_mask=(ids[pick] != PAD).long(), labels=team[subject[pick]]).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        if step % 20 == 0:
            print(f"tune step {step} loss {loss.item():.4f}", flush=True)
        if step % 100 == 0:
            print(f"   accuracy {accuracy(model, test_ids, team[test_subject]):.3f}", flush=True)


if __name__ == "__main__":
    main()
