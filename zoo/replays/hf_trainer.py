"""Hugging Face's Trainer on a small GPT-2 with dropout, accumulation and a warm-up."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
text = torch.randint(0, 64, (400, 12), generator=torch.Generator().manual_seed(1))
rows = [{"input_ids": row, "labels": row} for row in text]


class Model(GPT2LMHeadModel):
    calls = 0

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        Model.calls += 1
        if Model.calls == 2 * 90:
            output["loss"] = output["loss"] + (output["logits"].sum() * 0).sqrt()  # <- bites
        return output


config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=100,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        warmup_steps=10,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(Model(config), arguments, train_dataset=rows).train()
