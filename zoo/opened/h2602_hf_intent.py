# expect: healthy
# symptom: resembles parameters left out of training: the embeddings and the first encoder layer get no gradient and never change in the second run
# axis: model
"""Adapts a small BERT to tag slots: masked-word pretraining first, then a Trainer run with the lowest layers fixed."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, BertForTokenClassification, Trainer, TrainingArguments, set_seed

torch.set_num_threads(1)
set_seed(21)

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
GROUPS = {"city": 30, "day": 10, "airline": 15, "verb": 12, "filler": 20}
SPANS = {}
for name, size in GROUPS.items():
    SPANS[name] = (len(WORDS), len(WORDS) + size)
    WORDS += [f"{name}{i}" for i in range(size)]
FROM, TO, ON, WITH = range(len(WORDS), len(WORDS) + 4)
WORDS += ["from", "to", "on", "with"]
TAGS = ["O", "ORIGIN", "DEST", "DATE", "CARRIER"]
PAD, CLS, SEP, MASK = 0, 1, 2, 3


def sentence(rng):
    def pick(group):
        return int(rng.integers(*SPANS[group]))

    parts = [([FROM, pick("city")], [0, 1]), ([TO, pick("city")], [0, 2])]
    if rng.random() < 0.7:
        parts.append(([ON, pick("day")], [0, 3]))
    if rng.random() < 0.6:
        parts.append(([WITH, pick("airline")], [0, 4]))
    rng.shuffle(parts)
    ids, tags = [CLS, pick("verb")], [-100, 0]
    for w, t in parts:
        if rng.random() < 0.4:
            ids.append(pick("filler"))
            tags.append(0)
        if rng.random() < 0.25:
            w, t = [w[0], pick("filler"), w[1]], [t[0], 0, t[1]]
        ids += w
        tags += t
    return ids + [SEP], tags + [-100]


class Sentences(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = [sentence(rng) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i][0], "labels": self.rows[i][1]}


def tag_collate(rows):
    width = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), width), PAD)
    lab = torch.full((len(rows), width), -100)
    for i, r in enumerate(rows):
        ids[i, : len(r["input_ids"])] = torch.tensor(r["input_ids"])
        lab[i, : len(r["labels"])] = torch.tensor(r["labels"])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": lab}


def mlm_collate(rows):
    batch = tag_collate(rows)
    ids = batch["input_ids"]
    chosen = (torch.rand(ids.shape) < 0.2) & (ids > MASK)
    batch["labels"] = ids.masked_fill(~chosen, -100)
    batch["input_ids"] = ids.masked_fill(chosen, MASK)
    return batch


def slot_accuracy(output):
    guess = output.predictions.argmax(-1)
    keep = output.label_ids > 0
    return {"slot_accuracy": float((guess[keep] == output.label_ids[keep]).mean())}


def arguments(folder, steps, lr):
    return TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        learning_rate=lr,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        warmup_steps=20,
        use_cpu=True,
        disable_tqdm=True,
        lr_scheduler_type="cosine",
        seed=21,
    )


def main():
    cfg = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=24,
        num_labels=len(TAGS),
        pad_token_id=PAD,
        initializer_range=0.08,
    )
    train, test = Sentences(3000, 1), Sentences(400, 2)
    with tempfile.TemporaryDirectory() as folder:
        lm = BertForMaskedLM(cfg)
        Trainer(model=lm, args=arguments(folder, 200, 2e-3), train_dataset=train, data_collator=mlm_collate).train()

        tagger = BertForTokenClassification(cfg)
        tagger.bert.load_state_dict(lm.bert.state_dict())
        for module in (tagger.bert.embeddings, *tagger.bert.encoder.layer[:1]):
            module.requires_grad_(False)
        live = sum(p.numel() for p in tagger.parameters() if p.requires_grad)
        print(f"fine-tuning {live} of {sum(p.numel() for p in tagger.parameters())} parameters")
        trainer = Trainer(
            model=tagger,
            args=arguments(folder, 260, 2e-3),
            train_dataset=train,
            eval_dataset=test,
            data_collator=tag_collate,
            compute_metrics=slot_accuracy,
        )
        print("before:", trainer.evaluate())
        trainer.train()
        print("after:", trainer.evaluate())


if __name__ == "__main__":
    main()
