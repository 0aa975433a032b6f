# expect: sick
# symptom: the language model's loss ends far above that of the same model elsewhere and its samples skip every other letter
# axis: data
# cause: the labels are already shifted by one in the dataset and the model shifts them again, so it learns token t+2
# says: (shift\w*.{0,40}(twice|again|double|two|second|already|also)|(twice|double|doubly|two|already|pre-?).{0,25}shift|(labels?|targets?).{0,60}(off by one|one (token|position) (too|further)|t ?\+ ?2|token after next|two (tokens|positions|steps) ahead|shifted|mis-?align)|next-?next)
# onset_step: 1
# fix: pass the input ids themselves as labels
# mended: MENDED=1
import os
import random

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
set_seed(7)

NAMES = ["Mara", "Tobias", "Ines", "Olek", "Yuki", "Farid", "Greta", "Pavel"]
PLACES = ["the harbour", "an old mill", "the market", "a quiet library", "the railway bridge"]
THINGS = ["a copper coin", "two letters", "the missing lantern", "a torn map", "some bread"]
VERBS = ["found", "carried", "dropped", "painted", "remembered", "stole"]


def story(rng):
    parts = []
    for _ in range(rng.randint(3, 5)):
        code = "".join(rng.choice("0123456789") * 2 for _ in range(8))
        parts.append(
            f"{rng.choice(NAMES)} {rng.choice(VERBS)} {rng.choice(THINGS)} near {rng.choice(PLACES)} "
            f"(box {code}, {rng.randint(10, 99)} coins)."
        )
    return " ".join(parts)


class CharBlocks(Dataset):
    def __init__(self, text, block):
        self.chars = sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(self.chars)}
        self.data = torch.tensor([self.stoi[c] for c in text])
        self.block = block

    def __len__(self):
        return (len(self.data) - 1) // self.block

    def __getitem__(self, i):
        chunk = self.data[i * self.block : (i + 1) * self.block + 1]
        x = chunk[:-1].clone()
        y = x.clone() if MENDED else chunk[1:].clone()
        return {"input_ids": x, "labels": y}


def main():
    rng = random.Random(7)
    text = " ".join(story(rng) for _ in range(1500))
    cut = int(len(text) * 0.97)
    data = CharBlocks(text, block=96)
    train = torch.utils.data.Subset(data, range(cut // 96))
    held = torch.utils.data.Subset(data, range(cut // 96, len(data)))
    config = GPT2Config(
        vocab_size=len(data.chars), n_positions=128, n_embd=96, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir="/tmp/story_trainer", max_steps=320, per_device_train_batch_size=12, learning_rate=2e-3,
        warmup_steps=20, lr_scheduler_type="cosine", weight_decay=0.01, logging_steps=20, report_to="none",
        save_strategy="no", use_cpu=True, disable_tqdm=True, seed=7,
    )  # fmt: skip
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=held)
    trainer.train()
    print(trainer.evaluate())
    model.eval()
    prompt = torch.tensor([[data.stoi[c] for c in "Mara found "]])
    out = model.generate(prompt, max_new_tokens=60, do_sample=False, pad_token_id=0)
    print("".join(data.chars[i] for i in out[0].tolist()))


if __name__ == "__main__":
    main()
