# Title: TRL GRPO
# Needs: trl
# Note: TRL leaves out a sample whose reward is NaN, so the NaN is in an output inside of the net
import case
import tiny_text
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

case.seed()
model = tiny_text.model()
case.poison(model.model.layers[1].mlp, 20)
rows = Dataset.from_list([{"prompt": tiny_text.text(6)} for _ in range(160)])


def reward(completions, **kwargs):
    return [float(len(set(one.split()))) for one in completions]


settings = GRPOConfig(
    "out", learning_rate=case.rate(5e-4), per_device_train_batch_size=8, num_generations=4, max_completion_length=12,
    max_steps=40, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False, disable_tqdm=True,
)  # fmt: skip
trainer = GRPOTrainer(model, reward, settings, rows, processing_class=tiny_text.tokenizer())
with case.training(trainer.model) as log:
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            log.loss(entry["loss"])
    log.steps = trainer.state.global_step
