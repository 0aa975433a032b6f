# Title: Hugging Face Trainer
# Needs: transformers accelerate
import case
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

case.seed()
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=4, n_head=4))
case.poison(model.transformer.h[1].mlp, 60)
tokens = torch.randint(0, 16, (1600, 32)).cumsum(1) % 256
rows = [{"input_ids": row, "labels": row} for row in tokens]
settings = TrainingArguments(
    "out", learning_rate=case.rate(5e-4), per_device_train_batch_size=16, num_train_epochs=1, logging_steps=1,
    save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=0,
)  # fmt: skip
trainer = Trainer(model, settings, train_dataset=rows)
with case.training(model) as log:
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            log.loss(entry["loss"])
    log.steps = trainer.state.global_step
