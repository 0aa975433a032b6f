"""Reads the source of a script for mistakes that no number shows, as a reviewer would.

Read are the files of the running functions and the modules beside them, but no installed package. A branch under a flag
of the module that is false now is not read. Each rule asks for all parts of a mistake and takes nothing from a single
name.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from steadytrain.capture.looks.aliased_references import aliased_references
from steadytrain.capture.looks.batch_seeds import batch_seeds
from steadytrain.capture.looks.best_comparisons import best_comparisons
from steadytrain.capture.looks.bootstrapped_ends import unused_ends
from steadytrain.capture.looks.carried_states import carried_states
from steadytrain.capture.looks.changed_copies import changed_copies
from steadytrain.capture.looks.changing_closures import changing_closures
from steadytrain.capture.looks.channel_order import swapped_channels
from steadytrain.capture.looks.codes_of_parts import codes_of_parts
from steadytrain.capture.looks.constant_penalties import constant_penalties
from steadytrain.capture.looks.cut_samples import cut_samples
from steadytrain.capture.looks.cut_scales import cut_scales
from steadytrain.capture.looks.divergence_scales import averaged_divergences, unsquared_temperatures
from steadytrain.capture.looks.drawn_windows import split_windows
from steadytrain.capture.looks.dropped_results import WORDS as DROPPED
from steadytrain.capture.looks.dropped_results import dropped_results
from steadytrain.capture.looks.early_fits import learned_before_split, scaled_before_split
from steadytrain.capture.looks.end_padding import end_as_padding, ends_put_in
from steadytrain.capture.looks.entropy_targets import runaway_temperatures
from steadytrain.capture.looks.fits_of_splits import fits_of_splits
from steadytrain.capture.looks.folded_streams import folded_streams
from steadytrain.capture.looks.free_weights import free_weights
from steadytrain.capture.looks.graph_offsets import graph_offsets
from steadytrain.capture.looks.growing_states import growing_states
from steadytrain.capture.looks.indexed_sums import indexed_sums
from steadytrain.capture.looks.kept_by_reference import kept_by_reference
from steadytrain.capture.looks.kept_graphs import kept_graphs, kept_in_epoch
from steadytrain.capture.looks.kept_residuals import kept_residuals
from steadytrain.capture.looks.kept_scales import kept_scales
from steadytrain.capture.looks.limits_as_ends import limits_as_ends
from steadytrain.capture.looks.listed_pairs import half_sorted_pairs, unsorted_pairs
from steadytrain.capture.looks.live_targets import live_targets
from steadytrain.capture.looks.local_labels import local_labels
from steadytrain.capture.looks.logit_thresholds import logit_thresholds
from steadytrain.capture.looks.loss_signs import wrong_signs
from steadytrain.capture.looks.losses_of_nodes import unmasked_nodes
from steadytrain.capture.looks.mask_interpolation import smoothed_masks
from steadytrain.capture.looks.mirrored_labels import mirrored_labels
from steadytrain.capture.looks.mixed_inputs import mixed_inputs
from steadytrain.capture.looks.mixed_orders import mixed_orders
from steadytrain.capture.looks.new_tokens import frozen_new_tokens
from steadytrain.capture.looks.opposite_padding import opposite_padding
from steadytrain.capture.looks.overlaps_of_logits import overlaps_of_logits
from steadytrain.capture.looks.overwritten_rows import overwritten_rows
from steadytrain.capture.looks.paired_draws import moved_alone, places_alone, separate_draws
from steadytrain.capture.looks.pruned_source import Pruned
from steadytrain.capture.looks.pruning_code import pruning_code
from steadytrain.capture.looks.rebuilt_vocabularies import rebuilt_vocabularies
from steadytrain.capture.looks.remade_optimizers import in_each_epoch, in_each_step
from steadytrain.capture.looks.repeated_derivatives import repeated_derivatives
from steadytrain.capture.looks.repeated_layers import repeated_layers
from steadytrain.capture.looks.repeated_seeds import repeated_seeds
from steadytrain.capture.looks.restarted_seeds import row_seeds, worker_seeds
from steadytrain.capture.looks.reversed_gradients import reversed_gradients
from steadytrain.capture.looks.reversed_passes import reversed_passes
from steadytrain.capture.looks.risk_sets import reversed_risk_sets
from steadytrain.capture.looks.row_positions import row_positions
from steadytrain.capture.looks.rows_regrouped import rows_regrouped
from steadytrain.capture.looks.sampling_corrections import added_corrections
from steadytrain.capture.looks.schedule_units import epochs_per_batch, updates_per_epoch
from steadytrain.capture.looks.separate_orders import separate_orders
from steadytrain.capture.looks.separate_splits import separate_splits
from steadytrain.capture.looks.shared_augmentation import shared_augmentation
from steadytrain.capture.looks.shared_states import shared_states
from steadytrain.capture.looks.sorted_tables import sorted_tables
from steadytrain.capture.looks.squared_spreads import squared_spreads
from steadytrain.capture.looks.swapped_sizes import swapped_sizes
from steadytrain.capture.looks.times_in_float32 import times_in_float32
from steadytrain.capture.looks.uniform_codes import uniform_codes
from steadytrain.capture.looks.unrestored_states import unrestored_states
from steadytrain.capture.looks.unturned_returns import unturned_returns
from steadytrain.capture.step.late_lines import INSTALLED
from steadytrain.capture.step.script_frames import user_frames
from steadytrain.core.own_errors import own

FILES_MAX, CHARACTERS_MAX, BYTES_A_CHARACTER = 16, 200_000, 4
KEPT_MAX = 64
ROWS_MAX = 8
HELD = 4
"""Parts of an entry of ``linecache`` that holds a text; its second part is None where there is no file behind it."""

LISTINGS = ("listdir|glob|iterdir|scandir", "(?i)mask|seg|label|lbl|gt|target|truth|annot|depth|clea|sharp|hr")
RULES: Mapping[str, tuple[Callable[[ast.Module], Iterator[int | str]], tuple[str, ...]]] = {
    "separate-draws": (
        separate_draws,
        ("(?i)flip|crop|rot|affine|warp|roll|shift|elastic|perspect", "(?i)rand|choice"),
    ),
    "moved-alone": (
        moved_alone,
        (
            "(?i)flip|crop|rot|affine|warp|elastic|perspect|:: *-1",
            "(?i)rand|choice",
            "(?i)mask|seg|gt|depth|unet|dice|iou",
        ),
    ),
    "places-alone": (
        places_alone,
        (
            "(?i)flip|crop|rot|affine|warp|elastic|perspect|:: *-1",
            "(?i)rand|choice",
            "(?i)box|point|pts|coord|landmark|joint",
        ),
    ),
    "unused-end": (unused_ends, ("(?i)gamma|discount", "(?i)next|max|best|target")),
    "limit-as-end": (limits_as_ends, ("\\.step\\(", "(?i)term|trunc|done|time_?limit")),
    "codes-of-parts": (
        codes_of_parts,
        (
            "(?i)embedding|one_hot",
            "factorize|codes\\b|enumerate|Encoder|return_inverse|setdefault|len\\(",
            "(?i)categor|factorize|set\\(|{|unique|Encoder|setdefault",
        ),
    ),
    "runaway-temperature": (
        runaway_temperatures,
        ("(?i)ent(ropy)?_?target|target_?ent|target_?h\\b", "(?i)alpha|temp|coef", "backward|loss"),
    ),
    "time-in-float32": (
        times_in_float32,
        ("(?i)float", "(?i)ts\\b|stamp|unix|epoch|utc|clock|time_|_at\\b|_ms\\b|ticks?\\b|counter"),
    ),
    "uniform-code": (uniform_codes, ("rand_like|rand\\(", "(?i)mu|mean|loc")),
    "separate-orders": (
        separate_orders,
        ("shuffle|permutation|permuted|randperm|argsort|\\bsorted\\(|\\.sort\\(|unique\\(|\\bset\\(",),
    ),
    "swapped-sizes": (swapped_sizes, ("view\\(|reshape\\(", "shape|size\\(")),
    "constant-penalty": (constant_penalties, ("autograd\\.grad\\(|(?<![.\\w])grad\\(", "backward")),
    "updates-per-epoch": (updates_per_epoch, ("LR\\(|(?i:sched)", "(?i)epoch", "step\\(\\)", "len\\(|per_epoch")),
    "epochs-per-batch": (epochs_per_batch, ("LR\\(|schedule", "(?i)epoch", "step\\(\\)")),
    "second-derivative": (repeated_derivatives, ("grad\\(", "create_graph", "backward")),
    "row-positions": (row_positions, ("batch_first", "arange|size\\(|shape|len\\(")),
    "aliased-reference": (
        aliased_references,
        (
            r"(?i)(ref|reference|target|tgt|teacher|frozen|ema|_k)\w*\s*=",
            "no_grad|inference_mode|detach",
            "parameters\\(",
        ),
    ),
    "reversed-gradient": (reversed_gradients, ("Function\\b", "def backward")),
    "repeated-seed": (repeated_seeds, ("seed|default_rng|RandomState", "backward")),
    "kept-by-reference": (
        kept_by_reference,
        (r"(?m)\bif\b.*[<>]", r"(?i)best|min|max|state_dict", "(?i)train|backward"),
    ),
    "shared-layers": (
        repeated_layers,
        (r"\] *\*|\* *\[|(ModuleList|Sequential)\(.*\bfor\b", "(?i)linear|module|conv|norm"),
    ),
    "cut-sample": (cut_samples, (r"\.sample\(\)", "Normal|Laplace", r"(?i)param|dec|critic|q|log_prob")),
    "wrong-best": (best_comparisons, (r"\bif\b.*[<>]", "(?i)best", "save|state_dict|deepcopy")),
    "logit-threshold": (logit_thresholds, ("BCEWithLogitsLoss|binary_cross_entropy_with_logits", r"0?\.5\b|round\(")),
    "step-optimizer": (in_each_step, ("Adam|RMSprop|SGD|Lion|LAMB|Adafactor", "backward", "parameters\\(")),
    "epoch-optimizer": (in_each_epoch, ("Adam|RMSprop|SGD|Lion|LAMB|Adafactor", "backward", "(?i)ep(och)?s?\\b")),
    "worker-seed": (worker_seeds, ("worker_init_fn", "seed\\(", "num_workers")),
    "row-seed": (row_seeds, ("def __getitems?__", "seed\\(")),
    "batch-seed": (batch_seeds, ("collate_fn", r"seed\(|RandomState\(|default_rng\(|Random\(")),
    "squared-spread": (squared_spreads, ("exp\\(", "(?i)log_?var|log_?sigma|lv", "randn|normal|Normal")),
    "kept-graphs": (kept_graphs, ("backward", r"\+|append\(")),
    "frozen-new-tokens": (frozen_new_tokens, ("(?i)lora|adapter|peft|IA3", r"resize_token_emb|Embedding\(")),
    "averaged-divergence": (averaged_divergences, (r"kl_div\(|KLDivLoss\(",)),
    "unsquared-temperature": (unsquared_temperatures, (r"kl_div\(|KLDivLoss\(", "softmax")),
    "kept-in-epoch": (kept_in_epoch, ("backward", r"\+|append\(")),
    "unmasked-nodes": (unmasked_nodes, ("(?i)test_?mask|val_?mask|idx_?test|mask_test|test_?idx", "backward")),
    "end-as-padding": (end_as_padding, ("(?i)pad", "(?i)eos|eot|end|stop", "==|!=|ignore_index|DataCollator")),
    "end-put-in": (ends_put_in, ("(?i)pad", "(?i)eos|eot|end|stop", "==|!=|ignore_index|DataCollator")),
    "live-target": (live_targets, ("(?i)gamma|discount|adv|delta|predictor", "(?i)q|value|critic|vf|predictor")),
    "split-fit": (
        fits_of_splits,
        ("fit\\w*\\(|std\\(|factorize|unique", "(?i)train|tr\\b", "(?i)test|val|dev|holdout"),
    ),
    "rebuilt-vocabulary": (
        rebuilt_vocabularies,
        ("enumerate\\(|range\\(|len\\(", "(?i)vocab|stoi|to_?i|2_?i|tok|char|word|text|split\\("),
    ),
    "carried-state": (carried_states, ("LSTM|GRU|RNN", "backward")),
    "wrong-sign": (
        wrong_signs,
        ("backward", "(?i)log_?prob|logp|entropy\\(|log_?var|log_?sigma|kl_divergence|reduction="),
    ),
    "unmixed-labels": (mixed_inputs, ("1(\\.0?)? *- *\\w+|randperm|permutation", "\\[.*\\]")),
    "opposite-padding": (opposite_padding, ("(?i)label|target|mask|\\by\\b", "(?i)pad|full\\(|zeros\\(|\\] *\\*")),
    "sorted-otherwise": (
        sorted_tables,
        ("lexsort|sort_values|sort\\(|sorted\\(", "reshape|view|split|chunk|range\\("),
    ),
    "mirrored-labels": (mirrored_labels, ("(?i)flip|:: *-1",)),
    "growing-state": (growing_states, ("Module|Cell", "exp\\(|1(\\.0?)? *\\+|\\+ *1")),
    "overwritten-rows": (overwritten_rows, ("def __getitem__|collate_fn",)),
    "unrestored-state": (unrestored_states, ("state_dict\\(\\)", "(?i)opt")),
    "shared-state": (
        shared_states,
        ("class ", "append|push|add|store|remember|put|insert|extend", "self\\.\\w+(\\[.*\\])? *[-+*/]?="),
    ),
    "free-weights": (free_weights, ("Parameter|requires_grad *= *True", "exp\\(|\\*\\* *2|square|pow")),
    "rows-regrouped": (rows_regrouped, ("argsort|sort\\(|==", "cat\\(|concat|vstack|pack_padded")),
    "learned-before-split": (
        learned_before_split,
        ("\\.fit\\w*\\(", "Select|RFE|Encoder|Discrim|PLS|SMOTE|ADASYN|OverS"),
    ),
    "split-windows": (
        split_windows,
        (
            "random_split|train_test_split|ShuffleSplit|KFold|randperm|permutation|shuffle\\(",
            "for |unfold|sliding_|__getitem__",
        ),
    ),
    "smoothed-mask": (
        smoothed_masks,
        (
            "(?i)mask|seg|label_?map|lbl|gt|annot",
            "resize|interpolate|Resize|rotate|affine|warp|perspective|zoom",
            "long|Long|int64|int32|astype",
        ),
    ),
    "half-sorted": (half_sorted_pairs, LISTINGS),
    "unsorted-listing": (unsorted_pairs, LISTINGS),
    "separate-splits": (separate_splits, ("train_test_split(?s:.*)train_test_split\\(",)),
    "shared-augmentation": (
        shared_augmentation,
        ("random_split|Subset\\(", "(?i)flip|crop|rot|jitter|augm|erase|roll"),
    ),
    "pruning-code": (pruning_code, ("(?i)prun",)),
    "swapped-channels": (swapped_channels, ("cv2\\.imread\\(", "pretrained|weights|load_(state_dict_from_)?url")),
    "scaled-before-split": (scaled_before_split, ("fit\\w*\\(|std\\(|max\\(", "(?i)split|train")),
    "indexed-sum": (indexed_sums, ("\\] *[+-]= |\\] = \\w+\\[", "zeros|full\\(", "Module|backward")),
    "kept-residual": (kept_residuals, ("topk", "(?i)resid|memor|error|feedback|carry|left_?over|backlog|unsent|err")),
    "changed-copy": (changed_copies, ("\\]\\.\\w+_\\(", "torch|backward")),
    "dropped-result": (dropped_results, (*DROPPED, "torch|sklearn|backward")),
    "reversed-straight-through": (
        reversed_passes,
        (
            "detach\\(|\\.data\\b|no_grad|stop_?grad|\\bsg\\(",
            "(?i)quant|code|hard|round|sign|hot|argm|scatter|straight|q\\b|snap|bernoulli|[<>]",
        ),
    ),
    "reversed-risk": (
        reversed_risk_sets,
        ("cumsum|sumexp|sum\\(", "sort|None|unsqueeze|view", "(?i)cox|partial|hazard|risk|event|censor|surviv|breslow"),
    ),
    "graph-offset": (
        graph_offsets,
        (
            "max\\(|unique|set\\(",
            "\\+=|\\+ 1|cumsum",
            "(?i)edge|bond|face|adj|graph|triang|link|contact|neighbo|triple",
        ),
    ),
    "changing-closure": (changing_closures, ("BFGS", "step\\(")),
    "added-correction": (
        added_corrections,
        ("(?i)log", "\\+|add", "arange|zeros|diag", "(?i)log_?q|freq|pop|sampl|propos|unigram|noise|expected"),
    ),
    "local-labels": (
        local_labels,
        ("arange\\(", "(?i)rank|process_index|shard|replica|worker|gather", "(?i)all|gather|global"),
    ),
    "reversed-returns": (
        unturned_returns,
        ("reversed\\(|: *: *-1|, *-1 *, *-1|flip\\(|reverse\\(", "append\\(|insert\\(", "(?i)gamma|discount|lam"),
    ),
    "overlap-of-logits": (
        overlaps_of_logits,
        ("(?i)dice|iou|jaccard|tversky|inter|overlap|union", "sum\\(", "/"),
    ),
    "cut-off-scale": (
        cut_scales,
        (
            "relu|ReLU|clamp|clip|threshold|square|pow|\\*\\* *2",
            "(?i)var|sigma|std|scale|sd\\b|temp|conc|kappa|spread|prec",
            "log|/|Normal|Laplace|NLL",
        ),
    ),
    "mixed-order": (
        mixed_orders,
        ("transpose|swapaxes|swapdims|permute|rearrange|\\.m?T\\b|stack\\(", "reshape|view|flatten|->", "(?i)adv|ret"),
    ),
    "folded-stream": (folded_streams, ("view|reshape|unflatten", "\\+ *1\\b", "for |while ")),
    "kept-scale": (kept_scales, ("\\.scale\\(", "\\.update\\(", "continue|isnan|isinf|isfinite")),
}
"""Each finds the lines of one mistake, some as ``LINE:WHAT``; a source without its words is not parsed."""


def reading_rows() -> Iterator[tuple[str, float]]:
    """``RULE:FILE:LINE``, 1, for each mistake that is found."""
    found = 0
    for file, names in source_files().items():
        flags = tuple((name, value) for name, value in list(names.items()) if type(value) is bool)
        for rule, line in _mistakes_in(file, flags):
            if found == ROWS_MAX:
                return
            found += 1
            yield f"{rule}:{Path(file).name}:{line}", 1.0


class SourceReading:
    """The mistakes in the source, for the first training of a process and for the first one that goes on from a
    checkpoint: each later one would report the same lines again."""

    def __init__(self) -> None:
        self._read = self._read_resumed = False

    def rows(self, seen: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        """The mistakes, in a training whose first look has ``seen`` these rows."""
        resumed = any(name.startswith("moments-given:") for name in seen)
        if not self._read or (resumed and not self._read_resumed):
            self._read, self._read_resumed = True, self._read_resumed or resumed
            yield from reading_rows()


def sources_hold(pattern: str) -> bool:
    """Whether a file of the script holds ``pattern``."""
    return any(re.search(pattern, "".join(linecache.getlines(file))) for file in source_files())


def _mistakes_in(file: str, flags: tuple[tuple[str, bool], ...]) -> Iterable[tuple[str, int | str]]:
    held: Any = linecache.cache.get(file)
    if held is not None and len(held) == HELD and held[1] is None:  # what runs is not the text of the file
        return mistakes("".join(held[2]), dict(flags))
    try:
        known = os.stat(file)
    except own(OSError):
        return ()
    return _read(file, known.st_mtime_ns, known.st_size, flags)


@functools.lru_cache(maxsize=KEPT_MAX)
def _read(
    file: str, mtime_ns: int, size: int, flags: tuple[tuple[str, bool], ...]
) -> tuple[tuple[str, int | str], ...]:
    """The mistakes in ``file``, which is read once for all trainings of a process."""
    if size > CHARACTERS_MAX * BYTES_A_CHARACTER:
        return ()
    try:
        source = Path(file).read_text(encoding="utf-8")
    except own(OSError, UnicodeDecodeError):
        return ()
    return tuple(mistakes(source, dict(flags))) if len(source) <= CHARACTERS_MAX else ()


def mistakes(source: str, names: Mapping[str, Any]) -> Iterator[tuple[str, int | str]]:
    """The rule and the line of each mistake in ``source``; ``names`` are the values of its module now."""
    asked = {rule: find for rule, (find, words) in RULES.items() if all(re.search(word, source) for word in words)}
    if not asked:
        return
    try:
        tree = Pruned(names).visit(ast.parse(source))
        for rule, find in asked.items():
            for line in find(tree):
                yield rule, line
    except (SyntaxError, ValueError, RecursionError):
        return


def source_files() -> dict[str, Mapping[str, Any]]:
    """The files to read with the values of their modules: those that run, then those of modules in their folders."""
    running = [
        file
        for file in dict.fromkeys(frame.code.co_filename for frame in user_frames())
        if not any(one in file for one in INSTALLED)
    ]
    folders = {os.path.dirname(file) for file in running}
    values: dict[str, Mapping[str, Any]] = {}
    for module in list(sys.modules.values()):
        names = module.__dict__ if type(module) is ModuleType else {}
        file = names.get("__file__")
        if isinstance(file, str) and os.path.dirname(file) in folders:
            values.setdefault(file, names)
    ordered = [*running, *(file for file in values if file not in running)]
    return {file: values.get(file, {}) for file in ordered[:FILES_MAX]}
