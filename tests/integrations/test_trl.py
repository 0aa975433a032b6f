"""TRL's SFTTrainer, on a tiny model and a tokenizer that is trained here on the text of Python's standard library."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from steadytrain.integrations.hf_trainer import SteadyTrainCallback
from steadytrain.testing import Probe, assert_contract, by_itself

datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
trl = pytest.importorskip("trl")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the frameworks warn of one another

STEPS = 3
WORDS, LENGTH = 300, 32


@cache
def texts() -> list[str]:
    """Docstrings and code of the standard library's json package."""
    source = "\n".join(path.read_text("utf-8") for path in sorted(Path(json.__file__).parent.glob("*.py")))
    return [source[at : at + 200] for at in range(0, 8_000, 200)]


@cache
def tokenizer() -> Any:
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(texts(), vocab_size=WORDS, special_tokens=["<end>"], show_progress=False)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, eos_token="<end>", pad_token="<end>")


def train(probe: Probe) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    words = tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    settings = trl.SFTConfig(
        output_dir=str(probe.folder / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        max_length=LENGTH,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
    )
    trainer = trl.SFTTrainer(
        transformers.LlamaForCausalLM(config),
        settings,
        train_dataset=datasets.Dataset.from_dict({"text": texts()}),
        processing_class=words,
        callbacks=[SteadyTrainCallback(**probe.options)] if probe.watched else [],
    )
    trainer.train()
    seen = [[log.get("loss"), log.get("grad_norm")] for log in trainer.state.log_history]
    return seen, trainer.model


def test_supervised_fine_tuning() -> None:
    recorded = assert_contract(train, step=2, parameter="model.layers.0.mlp.up_proj.weight", attach=by_itself)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))
    assert recorded.streams["main"].present["tokens"].all()
    (fit,) = recorded.facts["trainers"]
    assert fit["settings"]["max_length"] == LENGTH
