"""Checks of data sets, workers and tokenizers: each on a fault, and on what looks alike."""

from __future__ import annotations

import random
from typing import Any

import faulty_models as faulty
import healthy_models as healthy
import numpy as np
import pytest
import torch
from check_outcomes import outcome
from torch.utils.data import DataLoader

from steadytrain.checks.subject.model_check import Outcome

# The data set and its loader.


def loaded(rows: list[Any], *, shuffle: bool) -> dict[str, Any]:
    dataset = faulty.Rows(rows)
    return {"dataset": dataset, "loader": DataLoader(dataset, batch_size=8, shuffle=shuffle)}


def classes(count: int, *, ordered: bool, seed: int = 0) -> list[Any]:
    chance = torch.Generator().manual_seed(seed)
    labels = [place * 2 // count for place in range(count)]
    if not ordered:
        random.Random(0).shuffle(labels)
    return [{"features": torch.randn(12, generator=chance), "label": label} for label in labels]


def with_nan() -> list[Any]:
    rows = classes(300, ordered=False)
    rows[70]["features"][3] = float("nan")
    return rows


def test_sorted_rows_matter_where_the_loader_does_not_shuffle() -> None:
    family = healthy.tabular()
    assert outcome("loader-data", family, **loaded(classes(300, ordered=True), shuffle=True)).status == "pass"
    assert outcome("loader-data", family, **loaded(classes(300, ordered=False), shuffle=False)).status == "pass"
    found = outcome("loader-data", family, **loaded(classes(300, ordered=True), shuffle=False))
    assert found.status == "fail"
    assert "order of label" in found.message
    assert "does not shuffle" in found.message


def test_a_number_that_is_not_finite_is_found_before_its_batch_comes() -> None:
    found = outcome("loader-data", healthy.tabular(), **loaded(with_nan(), shuffle=True))
    assert found.status == "fail"
    assert "NaN or infinite" in found.message


def test_the_same_batch_again_and_again_is_a_fault_where_there_is_more_data() -> None:
    family = healthy.tabular()
    same = {**family, "batches": [family["batches"][0]] * 4}
    assert outcome("loader-data", same).status == "pass"  # all the data there is, for what is known
    assert outcome("loader-data", same, **loaded(classes(32, ordered=False), shuffle=True)).status == "pass"
    found = outcome("loader-data", same, **loaded(classes(300, ordered=False), shuffle=True))
    assert found.status == "fail"
    assert "96 of 128 rows" in found.message


def test_repeated_ngrams_of_the_data_are_told() -> None:
    rows = [{"input_ids": torch.randint(0, 50, (64,))} for _ in range(50)]
    rows += [{"input_ids": torch.tensor([7, 8] * 40)} for _ in range(10)]
    found = outcome("loader-data", healthy.small_gpt(), **loaded(rows, shuffle=True))
    assert found.status == "fail"
    assert "10 of 60 rows repeat" in found.message


def test_a_row_that_is_far_longer_than_the_first_is_found_in_the_data() -> None:
    family = healthy.small_gpt()
    assert outcome("sequence-length", family, dataset=faulty.token_rows([20, 60, 40] * 50)).status == "pass"
    found = outcome("sequence-length", family, dataset=faulty.token_rows([20] * 300 + [900]))
    assert found.status == "warn"
    assert "900 tokens" in found.message
    found = outcome("sequence-length", healthy.hf_gpt2(), dataset=faulty.token_rows([20] * 300 + [70]))
    assert "a row has 70 tokens, and the model 64 positions" in found.message


def test_processes_that_all_read_everything_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    rows = classes(300, ordered=False)
    found = outcome("loader-data", healthy.tabular(), **loaded(rows, shuffle=True))
    assert found.status == "warn"
    assert "4 processes" in found.message
    dataset = faulty.Rows(rows)
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=4, rank=0)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    assert outcome("loader-data", healthy.tabular(), dataset=dataset, loader=loader).status == "pass"


# Workers.


class Drawing:
    """Rows with noise from a generator of its own, or from the global one of torch."""

    def __init__(self, generator: Any) -> None:
        self.settings = {"augmentation": [generator]}

    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> Any:
        generator = self.settings["augmentation"][0]
        if isinstance(generator, np.random.Generator):
            return torch.full((12,), float(place)) + generator.normal()
        if isinstance(generator, random.Random):
            return torch.full((12,), float(place)) + generator.gauss(0.0, 1.0)
        return torch.full((12,), float(place)) + torch.randn(())


def workers(generator: Any, *, count: int = 2, init: Any = None) -> Outcome:
    dataset = Drawing(generator)
    loader = DataLoader(dataset, batch_size=4, num_workers=count, worker_init_fn=init)  # type: ignore[arg-type]
    found = outcome("worker-randomness", healthy.tabular(), dataset=dataset, loader=loader)
    if isinstance(generator, np.random.Generator):
        assert generator.bit_generator.state == np.random.default_rng(5).bit_generator.state, "it was drawn from"
    return found


def seeds_all_alike(worker: int) -> None:
    np.random.seed(0)
    random.seed(0)


def seeds_by_number(worker: int) -> None:
    np.random.seed(worker)


def test_workers_that_draw_the_same_numbers() -> None:
    assert workers(None).status == "pass"
    assert workers(None, init=seeds_by_number).status == "pass"
    assert workers(np.random.default_rng(5), count=0).status == "not-run"
    found = workers(np.random.default_rng(5))
    assert found.status == "fail"
    assert "dataset.settings['augmentation'][0]" in found.message
    assert workers(random.Random(5)).status == "fail"
    assert workers(np.random.default_rng(5), count=1).status == "warn"
    found = workers(None, init=seeds_all_alike)
    assert found.status == "fail"
    assert "NumPy, Python" in found.message


def test_what_is_said_is_what_workers_draw() -> None:
    def rows(generator: Any) -> tuple[float, float]:
        loader = DataLoader(Drawing(generator), batch_size=1, num_workers=2)  # type: ignore[arg-type]
        first, second = [batch[0, 0].item() for _, batch in zip(range(2), loader, strict=False)]
        return first, second - 1.0

    first, second = rows(np.random.default_rng(5))
    assert first == second
    first, second = rows(None)
    assert first != second


# Tokenizers.


def words(*, lossy: bool = False, extra: int = 0) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(33, 127)] if not lossy else list("etaoin")
    vocabulary = {
        name: place for place, name in enumerate(["<unk>", "</s>", *letters, *map(str, range(10, 10 + extra))])
    }
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast.add_special_tokens(["<unk>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="<unk>", eos_token="</s>")


def of_words(rows: int = 128) -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=rows, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    ids = [torch.randint(2, 90, (4, 16), generator=torch.Generator().manual_seed(n)) for n in range(2)]
    batches = [{"input_ids": one, "labels": one} for one in ids]
    return healthy.given(transformers.GPT2LMHeadModel(config), batches)


def test_a_tokenizer_that_fits_and_ones_that_do_not() -> None:
    assert outcome("tokenizer-match", {**of_words(), "tokenizer": words()}).status == "pass"
    found = outcome("tokenizer-match", {**of_words(), "tokenizer": words(lossy=True)})
    assert found.status == "fail"
    assert "without some of their letters" in found.message
    found = outcome("tokenizer-match", {**of_words(), "tokenizer": words(extra=100)})
    assert found.status == "fail"
    assert "the embedding 128 rows" in found.message
    family = of_words()
    family["model"].config.eos_token_id = 77
    found = outcome("tokenizer-match", {**family, "tokenizer": words()})
    assert found.status == "warn"
    assert "ends with token 1" in found.message


def test_the_tokenizer_stored_with_the_weights_is_compared(tmp_path: Any) -> None:
    words().save_pretrained(tmp_path)
    family = of_words()
    family["model"].config._name_or_path = str(tmp_path)
    found = outcome("tokenizer-match", {**family, "tokenizer": words()})
    assert found.status == "pass"
    assert "the same as in" in found.message
    found = outcome("tokenizer-match", {**family, "tokenizer": words(extra=2)})
    assert found.status == "fail"
    assert "vocabulary" in found.message
