"""Every private name of torch that steadytrain uses, its use, and what is lost without it.

A test forbids such names in every other file. Nothing here imports torch before the script does: a name is resolved on
first use. ``steadytrain doctor`` prints which names this torch has. A watch refuses to start if a required name
(``needed``) is missing, because it would see only part of the training.

    GRAPH_TASK()              call it; MissingNameError if this torch no longer has it
    COUNTERS.loaded()         the object, or None while its module is not imported
    VERSION.of(tensor)        an attribute of an object; VERSION.on(tensor): None if the object lacks it
"""

from __future__ import annotations

import functools
import importlib
import sys
from contextlib import suppress

from steadytrain.core import torch_samples
from steadytrain.core.torch_names import NAMES, MissingNameError, TorchAttribute, TorchName


def require() -> None:
    """Check that this torch has every name that a watch needs. Cheap; imports no compiler.

    Raises:
        MissingNameError: for the first missing name.
    """
    for name in NAMES:
        if name.needed and not name.works():
            raise MissingNameError(name.why())


COMPILER = "torch._dynamo"
"""The module that torch imports when the compiler is first used."""


def compiler_is_loaded() -> bool:
    """Whether the compiler has been imported. Before that nothing is compiled."""
    return COMPILER in sys.modules


def load_compiler() -> None:
    """Imports the compiler, if this torch can."""
    with suppress(Exception):
        importlib.import_module(COMPILER)


# -- what a watch needs ------------------------------------------------------------------------------------------

ENGINE = TorchName("torch.autograd:_engine_run_backward", "no loss is seen", needed=True)
NEXT_BATCH = TorchName(
    "torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", "no batch of a data loader is seen", needed=True
)
NEXT_INDEX = TorchName(
    "torch.utils.data.dataloader:_BaseDataLoaderIter._next_index", "the samples of a batch are unknown", needed=True
)
_TRACED = "our code would run while a compiler traces the script"
TRACING = TorchName("torch._guards:TracingContext.try_get", _TRACED, needed=True)
_FAKED = "a tensor without values looks like one with values"
FAKE_TENSOR = TorchName("torch._subclasses.fake_tensor:FakeTensor", _FAKED, needed=True)
IS_WRAPPER = TorchName(
    "torch.utils._python_dispatch:is_traceable_wrapper_subclass",
    "a tensor that wraps others looks like a plain one",
    needed=True,
)
_IN_MODES = "our operations would run in the script's modes"
NO_MODES = TorchName("torch.utils._python_dispatch:_disable_current_modes", _IN_MODES, needed=True)
NO_TORCH_FUNCTION = TorchName(
    "torch._C:DisableTorchFunction", "our operations would run in the script's subclasses", needed=True
)

# -- tensors, storages, graph nodes ----------------------------------------------------------------------------------

VERSION = TorchAttribute(
    "torch:Tensor._version",
    "no batch is recorded, because an in-place change would go unnoticed",
    made=lambda: torch_samples.torch().ones(1),
)
SPARSE_VALUES = TorchAttribute("torch:Tensor._values", "sparse gradients are not measured", made=torch_samples.sparse)
SPARSE_INDICES = TorchAttribute(
    "torch:Tensor._indices", "`steadytrain.testing` compares no sparse tensors", made=torch_samples.sparse
)
STORAGE_ADDRESS = TorchAttribute(
    "torch:UntypedStorage._cdata", "`locate`, `replay` and `repro` do not follow values through memory"
)
LOCAL_TENSOR = TorchAttribute(
    "torch.distributed.tensor:DTensor._local_tensor", "`locate` and `repro` do not inspect sharded tensors"
)
SEQUENCE = TorchAttribute(
    "torch.autograd.graph:Node._sequence_nr",
    "an operation of the backward has no line in the forward",
    made=lambda: torch_samples.node("mul"),
)
SAVED_OTHER = TorchAttribute(
    "torch.autograd.graph:Node._saved_other",
    "a loss divided for accumulation is shown divided",
    made=lambda: torch_samples.node("div"),
)
SAVED_SELF = TorchAttribute(
    "torch.autograd.graph:Node._saved_self",
    "a loss multiplied for accumulation is shown multiplied",
    made=lambda: torch_samples.node("mul"),
)
_STEP_LOSS = "the loss of a step whose parts are divided by a count of the whole step is their mean"
SAVED_REDUCTION = TorchAttribute(
    "torch.autograd.graph:Node._saved_reduction", _STEP_LOSS, made=torch_samples.likelihood
)
SAVED_WEIGHT = TorchAttribute(
    "torch.autograd.graph:Node._saved_total_weight", _STEP_LOSS, made=torch_samples.likelihood
)
SAVED_SIZES = TorchAttribute("torch.autograd.graph:Node._saved_self_sym_sizes", _STEP_LOSS, made=torch_samples.sum_node)
_NO_GRAPH = "the first losses are not looked into"
NODE_SHAPES = TorchAttribute("torch.autograd.graph:Node._input_metadata", _NO_GRAPH, made=torch_samples.likelihood)
SAVED_DIMENSION = TorchAttribute("torch.autograd.graph:Node._saved_dim", _NO_GRAPH, made=torch_samples.softmax)
SAVED_START = TorchAttribute("torch.autograd.graph:Node._saved_start", _NO_GRAPH, made=torch_samples.sliced)
SAVED_INDEX = TorchAttribute("torch.autograd.graph:Node._saved_index", _NO_GRAPH, made=torch_samples.select)
SAVED_AXIS_0 = TorchAttribute("torch.autograd.graph:Node._saved_dim0", _NO_GRAPH, made=torch_samples.transpose)
SAVED_AXIS_1 = TorchAttribute("torch.autograd.graph:Node._saved_dim1", _NO_GRAPH, made=torch_samples.transpose)
SAVED_AXES = TorchAttribute("torch.autograd.graph:Node._saved_dims", _NO_GRAPH, made=torch_samples.permute)
SAVED_IGNORED = TorchAttribute(
    "torch.autograd.graph:Node._saved_ignore_index", _NO_GRAPH, made=torch_samples.likelihood
)
SAVED_CAUSAL = TorchAttribute("torch.autograd.graph:Node._saved_is_causal", _NO_GRAPH, made=torch_samples.attention)
SAVED_HOOK = TorchAttribute(
    "torch._C:_autograd.SavedTensor.unpack_hook",
    "the first losses are looked into only until the script checkpoints or offloads activations",
    made=torch_samples.saved_tensor,
)
SINGLE_LEVEL = TorchName(
    "torch.autograd.function:_SingleLevelFunction.setup_context", "the trial `reference-operation` does not run"
)
KEEP_VERSION = TorchName(
    "torch.autograd.grad_mode:_unsafe_preserve_version_counter", "a stopped step is not run again to find the operation"
)

# -- modules ---------------------------------------------------------------------------------------------------------

PARAMETERS = TorchAttribute("torch.nn:Module._parameters", "models are not read", made=torch_samples.module)
BUFFERS = TorchAttribute("torch.nn:Module._buffers", "buffers are not stored or restored", made=torch_samples.module)
CHILDREN = TorchAttribute("torch.nn:Module._modules", "outputs of modules are not measured", made=torch_samples.module)
TRANSIENT_BUFFERS = TorchAttribute(
    "torch.nn:Module._non_persistent_buffers_set",
    "what a checkpoint restores is not compared",
    made=torch_samples.module,
)
FORWARD_HOOKS = TorchAttribute(
    "torch.nn:Module._forward_hooks", "outputs of modules are not measured", made=torch_samples.module
)
FORWARD_PRE_HOOKS = TorchAttribute(
    "torch.nn:Module._forward_pre_hooks", "outputs of modules are not measured", made=torch_samples.module
)
SCRIPTED = TorchName("torch.jit._recursive:create_script_module", "`torch.jit.script` refuses a watched module")
CALL = TorchAttribute("torch.nn:Module._call_impl", "the line that called a module is not named")
COMPILED_CALL = TorchAttribute(
    "torch.nn:Module._compiled_call_impl", "a module compiled by `module.compile()` is taken for an eager one"
)
DROPOUTS = TorchName("torch.nn.modules.dropout:_DropoutNd", "`diagnose` surveys no modules")
NORMS = TorchName("torch.nn.modules.batchnorm:_NormBase", "`diagnose` surveys no modules")
SPECTRAL_NORM = TorchName(
    "torch.nn.utils.parametrizations:_SpectralNorm", "a critic that is left in evaluation mode is not noticed"
)
OLDER_SPECTRAL_NORM = TorchName(
    "torch.nn.utils.spectral_norm:SpectralNorm", "a critic that is left in evaluation mode is not noticed"
)
BATCH_NORMS = TorchName("torch.nn.modules.batchnorm:_BatchNorm", "trials that change modules do not run")

# -- optimizers, gradient scalers, schedulers, data loaders ----------------------------------------------------------

SCALE = TorchAttribute(
    "torch.amp:GradScaler._scale",
    "no step under a gradient scaler is guarded",
    made=torch_samples.scaler,
)
SCALER_STATES = TorchAttribute(
    "torch.amp:GradScaler._per_optimizer_states",
    "clipping before unscaling is not seen",
    made=torch_samples.scaler,
)
FUSED_UNSCALES = TorchAttribute(
    "torch.optim:Adam._step_supports_amp_scaling", "gradients of a fused optimizer are shown scaled"
)
INNER_SCHEDULERS = TorchAttribute(
    "torch.optim.lr_scheduler:SequentialLR._schedulers",
    "a chain of schedulers counts as several",
    made=torch_samples.schedule,
)
MILESTONES = TorchAttribute(
    "torch.optim.lr_scheduler:SequentialLR._milestones",
    "the length of a chain of schedulers is not checked",
    made=torch_samples.schedule,
)
_DATA, _MADE = "data sets and passes over them are not distinguished", torch_samples.loader_iterator
DATASET = TorchAttribute("torch.utils.data.dataloader:_BaseDataLoaderIter._dataset", _DATA, made=_MADE)
INDEX_SAMPLER = TorchAttribute("torch.utils.data.dataloader:_BaseDataLoaderIter._index_sampler", _DATA, made=_MADE)
WORKERS = TorchAttribute("torch.utils.data.dataloader:_BaseDataLoaderIter._num_workers", _DATA, made=_MADE)
SENT = TorchAttribute(
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter._send_idx",
    "samples of loaders with workers are unknown",
)
RECEIVED = TorchAttribute(
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter._rcvd_idx",
    "samples of loaders with workers are unknown",
)
IN_ORDER = TorchAttribute(
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter._in_order",
    "samples of a loader with `in_order=False` may be the wrong ones",
)
LOADER_ITERATOR = TorchName("torch.utils.data.dataloader:_BaseDataLoaderIter", "`preflight` does not find the data set")
JOIN = TorchAttribute(
    "torch.distributed.algorithms.join:Joinable._join_config", "ranks may ask each other under `join()`"
)

DEFAULT_STORE = TorchName(
    "torch.distributed.distributed_c10d:_get_default_store",
    "ranks that no launcher gave a common run folder record as runs of their own",
)

# -- losses without gradients ---------------------------------------------------------------------------------------

_NO_EVALUATION = "the losses of a script's own evaluations are not recorded"
LOSS_FUNCTIONS = TorchName("torch._C:_nn", _NO_EVALUATION)
FIND_BUILTIN = TorchName("torch.jit._builtins:_find_builtin", _NO_EVALUATION)
REGISTER_BUILTIN = TorchName("torch.jit._builtins:_register_builtin", _NO_EVALUATION)
_OTHER_LOSS = "the loss of an evaluation may be compared with a training loss of another scale"
OF_CLASSES = TorchAttribute(
    "torch.autograd.graph:Node._saved_weight", _OTHER_LOSS, made=functools.partial(torch_samples.loss, "nll_loss")
)
OF_POSITIVES = TorchAttribute(
    "torch.autograd.graph:Node._saved_pos_weight",
    _OTHER_LOSS,
    made=functools.partial(torch_samples.loss, "binary_cross_entropy_with_logits"),
)
OF_SMOOTH = TorchAttribute(
    "torch.autograd.graph:Node._saved_beta", _OTHER_LOSS, made=functools.partial(torch_samples.loss, "smooth_l1_loss")
)
OF_HUBER = TorchAttribute(
    "torch.autograd.graph:Node._saved_delta", _OTHER_LOSS, made=functools.partial(torch_samples.loss, "huber_loss")
)

# -- where operations and backward passes are seen -------------------------------------------------------------------

GRAPH_TASK = TorchName("torch._C:_current_graph_task_id", "outputs of modules are not measured, `locate` does not run")
DISPATCH_DEPTH = TorchName("torch._C:_len_torch_dispatch_stack", _IN_MODES, needed=True)
FUNCTION_DEPTH = TorchName("torch._C:_len_torch_function_stack", _IN_MODES, needed=True)
PROFILED = TorchName("torch._C:_autograd._enable_record_function", "the script's profiler shows our operations")
PROFILES = TorchName("torch.autograd.profiler:_is_profiler_enabled", "the script's profiler shows our operations")
TRACE_STATE = TorchName("torch._C:_get_tracing_state", "outputs of modules are not measured")
IS_FUNCTORCH = TorchName("torch._C:_functorch.is_functorch_wrapped_tensor", "outputs of modules are not measured")
BACKWARD_NODE = TorchName("torch._C:_current_autograd_node", "`locate` does not name operations of the backward")
NEXT_SEQUENCE = TorchName("torch._C:_autograd._get_sequence_nr", "`locate` does not name operations of the backward")
DISPATCH_MODE = TorchName("torch.utils._python_dispatch:TorchDispatchMode", "`locate`, `replay` and `repro` do not run")
NO_DISPATCH = TorchName("torch._C:_DisableTorchDispatch", "`locate` does not summarise tensors")
PLAIN_DISPATCH = TorchName(
    "torch._C:_disabled_torch_dispatch_impl", "`locate` does not distinguish plain tensors from others"
)
FUNCTION_MODE = TorchName("torch.overrides:_get_current_function_mode", "`diagnose` does not survey a step's calls")
SCHEMA = TorchAttribute(
    "torch._ops:OpOverload._schema",
    "`locate`, `replay` and `repro` know no operation",
    made=lambda: torch_samples.torch().ops.aten.log.default,
)
OPERATOR = TorchName("torch._ops:OpOverload", "`repro` writes no scripts")
FILE_WRITER = TorchName("torch._C:PyTorchFileWriter", "`replay` does not keep checkpoints from being overwritten")
FILE_READER = TorchName("torch._C:PyTorchFileReader", "`replay` does not read back what it redirected")
FOREACH_NORM = TorchName("torch:_foreach_norm", "gradient norms are not measured")
FOREACH_COPY = TorchName("torch:_foreach_copy_", "tensor statistics and buffers are not taken")
FOREACH_ZERO = TorchName("torch:_foreach_zero_", "`compiled inside` does not run")

# -- the compiler ----------------------------------------------------------------------------------------------------

SKIP_RULES = TorchName("torch._dynamo.trace_rules:add", "compiled code may break its graphs at our hooks")
COUNTERS = TorchName("torch._dynamo.utils:counters", "whether the script compiles is unknown")
COMPILE_TIMES = TorchName("torch._dynamo.utils:compilation_time_metrics", "trials may take a compiled script for eager")
BACKENDS_USED = TorchName("torch._dynamo.eval_frame:cached_backends", "code compiled earlier is not noticed")
HOOK_GUARDS = TorchName(
    "torch._dynamo.config:skip_nnmodule_hook_guards", "a script that guards on hooks compiles its modules again"
)
OPTIMIZED_MODULE = TorchName(
    "torch._dynamo.eval_frame:OptimizedModule", "`diagnose` does not compare compiled with eager"
)
ORIGINAL_MODULE = TorchAttribute(
    "torch._dynamo.eval_frame:OptimizedModule._orig_mod", "a compiled model is not inspected"
)
LOOKUP_BACKEND = TorchName("torch._dynamo:lookup_backend", "`locate` does not compare compilers")
STATIC_ADDRESS = TorchName("torch._dynamo:mark_static_address", "`compiled inside` does not run")
INDUCTOR_PATCH = TorchName("torch._inductor.config:patch", "compilers are not compared")
CUDA_GRAPHS = TorchName("torch._inductor.config:triton.cudagraphs", "`compiled inside` does not run")
INDUCTOR_WRAPPER = TorchName("torch:_TorchCompileInductorWrapper", "`locate` does not inspect inductor's code")
BACKEND_WRAPPER = TorchName("torch:_TorchCompileWrapper", "`locate` does not inspect other compilers' code")

# -- what a crash leaves ---------------------------------------------------------------------------------------------

MEMORY_SNAPSHOT = TorchName("torch.cuda.memory:_snapshot", "an out-of-memory error is recorded without its blocks")
NCCL_RECORDER = TorchName(
    "torch._C:_distributed_c10d._dump_nccl_trace", "a hanging NCCL collective leaves no flight record"
)
FLIGHT_RECORDER = TorchName("torch._C:_distributed_c10d._dump_fr_trace", "a hanging collective leaves no record")

HOOKS_OF_MODULES = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)
HOOKS_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
HOOKS_OF_COMPLETE_GRADIENTS = "_post_accumulate_grad_hooks"
HOOKS_OF_TENSORS = ("_backward_hooks", HOOKS_OF_COMPLETE_GRADIENTS)
HOOKS_OF_EVERY_OPTIMIZER = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
HOOKS_OF_EVERY_MODULE = (
    *("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks"),
    *("_global_module_registration_hooks", "_global_parameter_registration_hooks", "_global_buffer_registration_hooks"),
)
"""The places where torch keeps hooks. `steadytrain.testing.leftovers` searches all of them for ours."""

WRAPPER_PREFIXES = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Prefixes that wrappers put before parameter names."""
