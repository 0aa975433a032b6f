"""Maps an operation and its device to the setting that makes it deterministic.

The lists follow the note on ``torch.use_deterministic_algorithms`` (torch 2.13), in dispatcher names. Only two runs
of an operation can show that it is nondeterministic; this module does not test that.
"""

from __future__ import annotations

ALGORITHMS = "torch.use_deterministic_algorithms(True)"
CUBLAS = f"CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment, with {ALGORITHMS}"
CUDNN = "torch.backends.cudnn.deterministic = True and torch.backends.cudnn.benchmark = False"
MEMORY = (
    f"{ALGORITHMS}, which fills memory that was not initialised (torch.utils.deterministic.fill_uninitialized_memory)"
)
THREADS = "torch.set_num_threads(1): no switch is known for it, but sums on one thread keep their order"
NONE_KNOWN = f"none is known: {ALGORITHMS} has no deterministic version of it and raises an error there"
NOT_TORCH = "torch has none: the operation belongs to another library, which may have one"
COLLECTIVE = "NCCL_ALGO and NCCL_PROTO fixed in the environment, with the same number of ranks"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MADE_DETERMINISTIC = _names(
    """
    index_put index_put_ _index_put_impl _index_put_impl_ _unsafe_index_put put put_ index_copy index_copy_
    scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_select_backward
    gather_backward replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    max_pool3d_with_indices_backward embedding_dense_backward repeat_interleave
    _flash_attention_backward _efficient_attention_backward _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
    """
)

WITHOUT_DETERMINISTIC_VERSION = _names(
    """
    avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward
    fractional_max_pool2d_backward fractional_max_pool3d_backward max_unpool2d max_unpool3d
    upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward upsample_trilinear3d_backward
    _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    nll_loss2d_forward nll_loss2d_backward _ctc_loss_backward _embedding_bag_backward _embedding_bag_dense_backward
    histc bincount median grid_sampler_2d_backward grid_sampler_3d_backward cumsum cumsum_ cumprod
    """
)

CONVOLUTIONS = _names(
    """
    convolution _convolution convolution_backward convolution_overrideable cudnn_convolution
    cudnn_convolution_transpose cudnn_convolution_relu _cudnn_rnn _cudnn_rnn_backward
    miopen_convolution slow_conv3d_forward _slow_conv2d_backward
    """
)

PRODUCTS = _names("mm addmm bmm baddbmm mv addmv dot vdot linear matmul _addmm_activation _scaled_mm _int_mm addbmm")

FROM_MEMORY = _names("empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize resize_")


def base_name(operation: str) -> str:
    """The bare name: ``index_put_`` for ``aten.index_put_.default``."""
    parts = operation.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def switch_for(operation: str, device: str) -> str:
    """The setting that makes ``operation`` (a dispatcher name) repeat its bits on ``device``.

    Returns a sentence in every case, also if torch has no such setting.
    """
    namespace, name, on_cpu = operation.split(".")[0], base_name(operation), device == "cpu"
    if namespace in ("c10d", "_c10d_functional", "c10d_functional"):
        return COLLECTIVE
    if namespace != "aten":
        return NOT_TORCH
    if name in FROM_MEMORY:
        return MEMORY
    if name in MADE_DETERMINISTIC:
        return ALGORITHMS
    if on_cpu:
        return THREADS
    if name in WITHOUT_DETERMINISTIC_VERSION:
        return NONE_KNOWN
    if name in CONVOLUTIONS:
        return f"{CUDNN}; or {ALGORITHMS}"
    if name in PRODUCTS:
        return CUBLAS
    return f"{ALGORITHMS} may have one, or raises an error where it has none"
