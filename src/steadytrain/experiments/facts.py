"""Facts of an incident: what a survey saw in the script's own steps, under documented names.

A survey (``survey/launch.py``) launches the recorded script once more and only inspects it. It stores ``facts.json`` in
the trials folder beside the incident. Causes read the facts by the names below. A fact that could not be gathered is
absent, which differs from ``0``, ``[]`` or ``False``. Nothing here judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json

SCHEMA = "steadytrain.facts/1"
FILE = "facts.json"

FACTS: Mapping[str, str] = {
    # -- the survey itself
    "surveyed_first_step": "first surveyed step of the script",
    "surveyed_last_step": "last surveyed step (the incident's, if it was reached)",
    "surveyed_steps": "number of surveyed steps",
    "survey_replayed": "whether recorded batches and states were fed (else the script made all steps by itself)",
    "survey_notes": "what could not be surveyed and why, texts",
    # -- parameters
    "parameter_elements": "elements of all parameters of the model",
    "parameters_frozen": "names of parameters with requires_grad False",
    "frozen_share": "share of elements in parameters with requires_grad False",
    "parameters_without_gradient": "names of trainable parameters whose gradient was None in every surveyed step",
    "parameters_zero_gradient": "names of trainable parameters whose gradient was all zero in every surveyed step",
    "parameters_not_in_optimizer": "names of trainable parameters of the model that no optimizer holds",
    "parameters_in_two_groups": "names of parameters that two groups or two optimizers hold",
    "optimizer_strangers": "parameters of the optimizer that have no gradient and belong to no called module, how many",
    "parameters_unmoved": "names of trainable parameters with a gradient that no surveyed update changed",
    "parameters_zero": "names of matrices (two or more dimensions) that are all zero at the first surveyed step",
    "parameters_nonfinite": "names of parameters with NaN or Inf at the first surveyed step",
    "parameters_strange": "name -> largest absolute value of parameters that no initialisation gives (above 1e3, or "
    "subnormal) at the first step of the run; only where the survey saw step 1",
    "initial_scale": "name -> rms of a matrix over 1/sqrt(fan-in) at the first step of the run, where it is below 0.02 "
    "or above 10 (embeddings: rms above 10)",
    "equal_rows": "names of matrices all of whose rows are equal at the first step of the run (symmetry not broken)",
    "parameters_cut_off": "names of parameters of the optimizer without a gradient that a tensor was computed from "
    "which a forward detached, or else that move the model's output",
    "cut_off_moves_output": "how far the model's output moves, over its size, where these are moved by a hundredth",
    "modules_not_called": "names of modules with trainable parameters that no surveyed step called",
    "modules_output_detached": "names of called modules with trainable parameters whose output required no gradient",
    "detached_calls": "lines `file:line: code` where a tensor that required a gradient was detached during a forward, "
    "or became a number or an array",
    "no_grad_calls": "names of modules with trainable parameters that training steps called under torch.no_grad",
    "tied": "pairs [name, name] that share memory",
    "tied_broken": "pairs [embedding, head] of one shape that do not share memory although they held equal values at "
    "the first step, or a configuration says that they are tied, or one is assigned from the other in the source",
    "state_loaded": "whether load_state_dict of a module was called before the first surveyed step",
    # -- precision
    "parameter_dtypes": "dtype -> number of trainable parameters",
    "autocast_dtype": "dtype of autocast during training forwards, absent without",
    "backward_in_autocast": "whether backward ran inside of autocast",
    "optimizer_in_autocast": "whether the optimizer stepped inside of autocast",
    "loss_dtype": "dtype of the logits that went into the loss function",
    "scaler": "whether a gradient scaler is used",
    "scaler_scale": "scale of the gradient scaler at the end",
    "scaler_skips": "steps that it skipped in the survey",
    "half_peak": "largest absolute finite output of a module or operation in float16, over 65504",
    "half_overflow": "lines `operation at file:line` whose result in float16 was Inf from finite inputs",
    "gradient_underflow_share": "share of gradient elements that are zero or subnormal in their dtype",
    "gradient_zero_share_by_float32": "the same share in float32, with random numbers in place of what the loss gives",
    "lost_update_share": "share of weights with a non-zero update that the update did not change",
    "lost_updates": "name -> that share, of tensors above 0.5",
    "state_dtypes": "dtype -> number of optimizer state tensors",
    "epsilon_lost": "whether epsilon is zero in the dtype of the optimizer's second moment",
    "update_beyond_rate": "name -> largest update in learning rates, above 10, of weights whose second moment is zero "
    "and whose first is not, so that only epsilon divides",
    "second_moment_below_epsilon": "share of weights with sqrt(second moment) below 0.1 epsilon",
    "second_moment_lag": "name -> rms of gradient over sqrt(second moment) at the last step, where above 2",
    "positions_low_precision": "buffers or tables of positions or frequencies in 16 bits: name -> dtype",
    "positions_equal": "table of positions -> first pair [i, j] of neighbouring positions whose rows are equal",
    # -- optimizer and schedule
    "optimizer": "class of the optimizer",
    "optimizers": "how many optimizers step",
    "learning_rate": "of the first group, at the last surveyed step",
    "learning_rates": "of the first group in each surveyed step",
    "learning_rate_first": "of the first group at the first step of the run",
    "learning_rate_groups": "one per group, at the last surveyed step",
    "betas": "[beta1, beta2] of the first group",
    "momentum": "of the first group",
    "epsilon": "of the first group",
    "weight_decay": "largest of all groups",
    "weight_decay_of_norms": "names of biases, norm scales and embeddings that are decayed",
    "decay_per_step": "largest learning rate x weight decay of a group: share of a weight taken a step",
    "decay_share_of_update": "norm of the decay over the norm of the whole update, largest tensor; where the decay is "
    "L2, of the whole gradient, most of all surveyed steps",
    "decay_is_l2": "whether the optimizer adds the decay to the gradient",
    "update_ratio": "rms of update over rms of weight at the last surveyed step, largest matrix",
    "update_ratio_first": "the same at the first surveyed step",
    "update_ratio_first_median": "the same at the first surveyed step, median matrix",
    "update_ratio_median": "the same at the last surveyed step, median matrix",
    "state_step": "smallest and largest step count in the optimizer's state, [smallest, largest]",
    "state_step_lag": "steps of the run minus the optimizer's own count: positive after a reset or a lost state",
    "state_shapes_wrong": "names whose optimizer state has another shape than the parameter",
    "moment_alignment": "cosine of first moment and gradient, over all tensors, at the last surveyed step",
    "second_moment_correlation": "correlation of log second moment and log squared gradient, lowest matrix",
    "state_loaded_optimizer": "whether load_state_dict of an optimizer was called",
    "scheduler": "class of the learning-rate scheduler, absent without",
    "scheduler_steps_per_step": "calls of scheduler.step per optimizer step",
    "scheduler_before_optimizer": "whether the scheduler was stepped before the optimizer in the first step",
    "scheduler_planned": "steps after which the scheduler ends (T_max, total_steps, ...), where it says so",
    "steps_planned": "optimizer steps that the run was planned to make, where known",
    "settings_changed": "list of {kind: optimizer|module|operand, name, step, before, after, ...}: plain numbers that "
    "changed near the onset, or moved by one factor (each) in every step up to it, and where they stand; no rates",
    "warmup_seen": "whether the learning rate rose over the first steps of the run",
    # -- the loop
    "zero_grad_calls": "calls of zero_grad (of optimizer or model) per optimizer step",
    "gradients_carried_over": "whether a gradient that an update had used was still there at the next backward",
    "gradients_rescaled": "whether the script changed the gradients of several backward calls before the update",
    "backwards_per_step": "backward calls per optimizer step",
    "backward_lines": "from how many lines of the script backward was called",
    "loss_divided": "whether the loss was divided before backward (by a number above 1)",
    "loss_divisor": "by how much",
    "clipped": "whether clip_grad_norm_ or clip_grad_value_ was called in the surveyed steps",
    "clip_value": "max_norm or clip_value of the last call",
    "clip_before_unscale": "whether gradients were clipped while the scaler's scale was on them",
    "clip_before_backward": "whether clipping saw no gradient of this step (before backward, or after the update)",
    "clip_coefficient": "median of max_norm / norm, at most 1",
    "optimizer_steps_without_backward": "updates without a backward since the one before",
    "retain_graph": "whether backward kept its graph",
    # -- loss functions
    "loss_functions": "list of {name, reduction, ignore_index, input_shape, target_shape, input_dtype, target_dtype, "
    "input_kind: logits|probabilities|log-probabilities|any, target_kind: classes|probabilities|values, line}",
    "probabilities_as_logits": "lines where the output of softmax or sigmoid (or what sums to one) went into "
    "a loss that takes logits",
    "logits_as_log_probabilities": "lines where values that are no log-probabilities went into nll_loss or kl_div",
    "loss_arguments_swapped": "lines where the target requires a gradient and the input does not",
    "broadcast": "lines `code: [shape] with [shape]` where a loss, or a difference that went into it, was broadcast "
    "between two shapes of the same number of elements or that differ in rank; with the line where [N] met [N, 1], if "
    "that made the target",
    "loss_terms": "list of {line, place, first, last}: numbers that the script adds or subtracts where it sums up its "
    "loss, with their sign there, at the first and at the last surveyed step",
    "loss_reductions": "list of {line, place, averaged, summed, heavier}: terms of the loss that sum `summed` elements "
    "of a row beside one that is a mean over `averaged` elements of it, and so weigh `heavier` times more than beside "
    "a sum",
    "policy_entropy": "{line, steps, lowered} of a loss with a policy gradient and an entropy: in how many of the "
    "surveyed steps the loss falls as the entropy does",
    "loss_sum": "whether the loss is a sum over the batch (reduction sum)",
    "label_smoothing": "largest label smoothing of a cross-entropy",
    "dropout": "largest share that dropout sets to zero in training steps",
    "softmax_dimension": "lines where softmax was taken over the batch dimension of a classification",
    "amplified": "list of {operation, line, step, result, before, divisor, divisor_before, divisor_usual, "
    "before_model}: operations of the script around the onset whose largest result is far above that of earlier steps, "
    "though what went in is not; in the order of the step",
    "wrapped_integers": "list of {operation, line, dtype, step, wrapped, elements, example, before_model}: operations "
    "of the script on integers, and casts to them, of whose elements so many of all did not fit the type",
    "rounded_differences": "list of {operation, line, dtype, distance, largest, step}: differences, remainders and "
    "phases of the script of numbers so large that their format rounds away what is taken of them",
    "cancelled_variances": "list of {line, dtype, distance, largest, left, step}: variances of the script that are the "
    "mean of squares less the square of the mean, of which rounding is left",
    "discarded_writes": "list of {line, by, copied, copy_line, times, step}: lines of the script that changed a copy "
    "in place by this function, which nothing read afterwards; by which function and where the copy was made",
    "nonfinite_made": "list of {operation, line, step, made, rows, of, by, before_model}: operations of the script "
    "that made NaN or Inf out of finite numbers; in which few of so many rows of their result; by what the divisor was "
    "made, if known; whether before the step called a model",
    "singular_calls": "list of {operation, line, smallest, zeros} of log, sqrt, division, pow, acos, norm at the edge "
    "of their domain (zeros or less in the input) during surveyed steps",
    "initial_loss": "loss of the first step of the run",
    "uniform_loss": "ln of the number of classes; absent where rows are told from each other",
    # -- labels and tokens
    "labels_ignored_share": "share of labels equal to ignore_index, last surveyed step",
    "labels_ignored_share_usual": "the same, median of surveyed steps",
    "rows_without_labels": "rows of the last step's batch whose labels are all ignored",
    "empty_masks": "list of {line, rows, whole, of, call}: means over a mask that selects nothing in these rows (or in "
    "the whole batch of so many rows), in the given model call of the last step",
    "rows_without_labels_share": "share over all surveyed steps",
    "pad_id": "the id that ends rows of the inputs in runs (padding), where there is one",
    "pad_share": "share of input positions that hold it",
    "pad_supervised_share": "share of labels that are the pad id and are not ignored",
    "label_largest": "largest label that is not ignored",
    "label_smallest": "smallest label that is not ignored",
    "classes": "size of the class dimension of the logits",
    "token_largest": "largest token id given to an embedding",
    "token_rows": "rows of that embedding",
    "tokens_out_of_range": "how many token ids or labels are outside of their table, last step",
    "label_shift": "k -> mean cross entropy of logits at t against token t+k, k = 0..3, last step of the survey",
    "label_shift_trained": "the k that labels really have against the inputs: labels[t] = inputs[t+k], absent if none",
    "targets_exchanged": "{rows, changed, now, then}: rows of surveyed steps from the onset on that were seen before, "
    "and how many of them have another target; one of them as [step, row], now and then",
    "inputs_repeated": "{batches, of}: surveyed batches from the onset on whose inputs are those of the batch before "
    "in its order, while their targets are others",
    "label_lag": "{places, dimension, aligned, own, before}: from the onset on predictions match labels so many places "
    "further along this dimension (0 is that of rows): their agreement there and at their own place, and that at their "
    "own place before the onset",
    "labels_equal_inputs": "share of supervised positions whose label is the token at that place of the input",
    "labels_read": "place among the id inputs of the one that is the labels themselves, embedded beside the tokens",
    "label_most_common_share": "share of the most frequent label over surveyed steps",
    "labels_leaked": "list of {input, share}: how well one input column alone tells the label, above 0.98, or holds "
    "the number that is to be predicted",
    "causal_gradient": "largest gradient of logits at t to inputs after t, over the largest to inputs up to t",
    "batch_gradient": "largest gradient of one row's output to another row's input, over that to its own",
    "tokenizer": "what turns ids into text: class of a tokenizer, a function or a table of the script",
    "tokenizer_size": "number of tokens of it, where it says so",
    "token_unknown_share": "share of tokens that are the tokenizer's unknown token",
    "target_range": "[smallest, largest] value of regression targets",
    "output_range": "[lowest, highest] value that the model's last operation can give (sigmoid, tanh, relu, ...)",
    "targets_out_of_reach": "share of targets outside of output_range by more than 1 percent of it",
    "ctc_infeasible_rows": "rows whose CTC target (with repeats) is longer than their input",
    "too_few_values": "{shape, rows, line, message} of the norm in training mode whose input had one value a channel, "
    "which ended the run",
    "singular_matrix": "{function, element, line, message} of the decomposition or inverse of a singular matrix that "
    "ended the run",
    "reused_graph": "{kind: freed or updated, from_step, in_step, parameters, carried, held, line, message} of the "
    "backward that ended the run, because it went through a graph that was used before",
    "index_outside": "{what: label|token|index, allowed, rows of {row, value, sample}, line, message} of an index "
    "outside its table that ended the run",
    "nonfinite_refused": "{made: NaN|Inf, from: batch|call, tensor, count, rows of {row, sample}, step, line, message} "
    "of the error that ended the run in a step whose batch held NaN or Inf",
    # -- modules
    "modules_in_eval": "names of modules that matter (dropout, batch norm) in eval mode during training steps",
    "eval_left_on": "whether eval() was called and the model was not in training mode in the next training step",
    "evaluated_in_train_mode": "whether calls without gradient ran in training mode",
    "dropout_functional": "whether functional dropout was called with training True outside of training",
    "batch_norm_values": "smallest number of values per channel that a batch norm in training normalised over",
    "batch_norm_modules": "names of batch norms",
    "batch_norm_variance": "[smallest, largest] running variance",
    "norm_over_batch": "names of layer or instance norms whose normalised dimension has one value (output is its bias)",
    "fully_masked_rows": "attention rows in which every key is masked, and the largest count in a step",
    "attention_logit_largest": "largest |logit| of attention, last step",
    "attention_unscaled": "whether attention multiplied queries and keys without dividing by sqrt(d)",
    "dead_units": "module -> share of units that are zero for every sample of the last step, where above 0.5",
    "saturated_units": "module -> share of outputs of tanh or sigmoid within 1e-3 of their ends, where above 0.5",
    "activation_ratio": "rms of the last layer's output over that of the first, first surveyed step",
    "gradient_ratio": "gradient rms of first over last layer (of those that have one), first surveyed step",
    "gradient_ratio_last": "the same at the last surveyed step",
    "log_partition": "mean log sum exp of the logits, last step",
    "router_share": "router -> share of tokens that its most chosen expert gets",
    "router_experts": "router -> number of experts",
    "router_balanced": "whether anything but the main loss (a balancing term) reaches the router's weights directly",
    "embedding_gradient_share": "share of the squared gradient norm in embedding tables, last step",
    "compiled": "names of compiled modules or functions",
    "compiled_difference": "largest difference of the outputs of compiled and eager on the last batch, in roundings of "
    "the largest output; in evaluation mode where the model draws random numbers",
    "compiled_rounding": "the same between eager and eager in float64: what rounding alone makes",
    "custom_operations": "names of torch.autograd.Function classes that were applied outside of torch",
    "overwritten_contexts": "list of {operation, attribute, applications}: custom operations that keep for their "
    "backward, as an attribute of the context, memory that changed before the backward, in so many applications",
    "custom_gradient_error": "custom operation -> relative error of its backward against finite differences in float64",
    # -- batches
    "input_scale": "{largest, middle, feature, features}: root mean squares of the features of the first "
    "floating-point input at the first surveyed step",
    "batch_nonfinite": "list of {step, input, rows, count}: NaN or Inf in what a loader gave or the model got",
    "missing_codes": "list of {step, input, value, places}: values that stand at several places of an input, or of "
    "what a loader gave, ten times beyond all others; of the last step, or else of the first that has them",
    "batch_scale": "largest absolute value of the last step's float inputs over the median step's",
    "target_scale": "the same for float targets",
    "batch_length": "longest dimension of the last step's rows over that of the median batch before it",
    "row_loss_share": "largest share of the last step's loss in one row",
    "row_loss": "losses of the rows of the last step, in order, at most 256",
    "rows_suspect": "rows whose loss or gradient norm is above 8 times the median row's, or that are not finite; "
    "absent if most rows are",
    "batch_rows": "rows of the batch at the onset that stand out, at most 8: list of {row, step, loss, tensor, dtype, "
    "elements, first, values, smallest, largest, text}: at most 16 values from the place `first` on, and the text "
    "where ids can be read; redacted",
    "loss_excess": "loss of the last batch over the median loss of other recorded batches, both in the state before it",
    "batch_distance": "how far the last batch's inputs are from the others', in their standard deviations",
    "data_shift": "the same for the batches from the onset on against those before it",
    "token_overlap": "[id by id, rank by rank]: mass that the frequencies of token ids before the onset share with "
    "those from it on, as they are and with both sorted; where ids were given other numbers only the second stays",
    "token_offset": "[offset, share]: from the onset on ids are those before plus this number, by their frequencies",
    "repeated_after": "the fewest steps after which a surveyed batch came again",
    "repeated_batches": "share of surveyed (and taped) batches that are bit-equal to an earlier one",
    "repeated_rows": "share of surveyed rows bit-equal to an earlier one",
    "repeated_rows_before": "share of rows that are copies of others, in the surveyed steps right before the onset",
    "repeated_rows_since": "the same in the surveyed steps from the onset on",
    "rows_change_when_read": "{attribute, row}: reading this row of the data set twice, with the same random numbers, "
    "returns other values, and writes into this attribute",
    "rows_drawn_anew": "a row of the data set that two reads with the same seeds return differently, where it holds no "
    "generator of its own",
    "torch_seeded": "whether anybody seeded torch in the recorded run",
    "rows_written": "{line, steps}: writes in place into rows that the model gets again in other steps",
    "surveyed_rows": "how many rows these are; where the data set has fewer they must repeat",
    "dataset_rows": "rows of the data set, where a loader tells",
    "labels_sorted": "share of neighbouring labels in reading order that are equal, over that if shuffled",
    "loader_shuffles": "whether the data loader draws at random, or reads a subset whose order is not that of "
    "the data set, where one was seen",
    "label_mix_change": "largest change of a label's share between halves of the surveyed steps, in standard errors",
    # -- where it runs
    "devices": "devices of the parameters",
    "faulty_device": "the device that computes wrong, and why, if replays on several devices found one",
    "ranks": "world size",
    "ranks_synchronized": "whether gradients were reduced over ranks before the update: their norms are the same",
    "rank_parameters_differ": "names of parameters that differ between ranks that held the same ones at first, by norm",
    "ranks_uneven": "{rank, steps, reached}: the rank that ended after so many steps while others were in step "
    "`reached` and lost contact",
    "rank_scales_differ": "steps at which ranks had different loss scales, or only some skipped their update",
    "workers": "worker processes of the data loader",
    "replay_exact": "whether the surveyed replay was exact",
    "first_difference": "{step, phase, tensor} of the first difference where it was not",
}
"""All facts and their meanings. Other names are not facts."""

LOADED = "of the loader's batch"


def of_loader(field: str) -> str:
    """The name of a tensor that a loader gave, by its key or its place in the batch."""
    return f"{'element ' if field[:1].isdigit() else ''}{field} {LOADED}"


WITHOUT_SURVEY = frozenset(
    {
        "ranks",
        "ranks_synchronized",
        "rank_parameters_differ",
        "rank_scales_differ",
        "ranks_uneven",
        "replay_exact",
        "index_outside",
    }
    | {"faulty_device", "nonfinite_refused", "too_few_values", "singular_matrix", "reused_graph", "torch_seeded"}
)
"""Facts that need no survey: from the records of the ranks, from the control, and from the error that ended the run."""


def facts_path(source: Path) -> Path:
    """The file of the facts: in the trials folder next to a bundle, or inside a run's folder."""
    if (source / "incident.json").is_file():
        return source.parent / "trials" / source.name / FILE
    return source / "trials" / FILE


def read_facts(source: Path) -> dict[str, Any] | None:
    """The facts of a bundle or a run, None without a complete survey."""
    try:
        document = read_json(facts_path(source), bytes_max=DOCUMENT_BYTES_MAX)
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return None
    facts = document.get("facts")
    return {name: value for name, value in facts.items() if name in FACTS} if isinstance(facts, dict) else None


def document_of(facts: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The ``steadytrain.facts/1`` document."""
    unknown = sorted(set(facts) - set(FACTS))
    assert not unknown, f"not documented as facts: {unknown}"
    return {"schema": SCHEMA, "source": source, "facts": dict(sorted(facts.items()))}
