"""What is known of entries of the operator database: those that run in eager, and those that are
not bitwise equal."""

from __future__ import annotations

from typing import NamedTuple


def names(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


def by_name(groups: dict[str, str]) -> dict[str, str]:
    """{reason: names} turned round."""
    return {name: reason for reason, text in groups.items() for name in names(text)}


# Entries that run in eager, by the reason. An entry that runs in eager and does not stand here is a
# failure.
EAGER = by_name(
    {
        "the shape of the result, or a number that the operator reads, depends on data": """
            item allclose combinations corrcoef cov equal masked_select quantile nanquantile
            tensor_split unique unique_consecutive nonzero argwhere nn.functional.gaussian_nll_loss
            narrow __getitem__ repeat_interleave nn.functional.ctc_loss bincount
            nn.functional.one_hot istft""",
        "an argument or a result is sparse": "sparse.sampled_addmm sparse.mm.reduce to_sparse",
        "torch cannot functionalise the operator in place": """
            polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_2
            polygamma.polygamma_n_3 polygamma.polygamma_n_4 lerp""",
        "the storage of an input changes in place": "resize_ addbmm",
        "results share memory that has gaps": "new_empty_strided empty_strided",
    }
)

# And what the front end leaves to eager besides.
CAPTURE_EAGER = by_name(
    {
        "the function warns": """
            nn.functional.linear_cross_entropy.chunked
            nn.functional.linear_cross_entropy.chunked_none""",
        "the result is no tensor": "broadcast_shapes",
    }
)

# What runs in eager besides where the tensors are not as the database gives them.
LAYOUT_EAGER = by_name(
    {
        "results share memory that has gaps": """
            slice_scatter select_scatter diagonal_scatter as_strided_scatter""",
        "random numbers for a tensor with gaps": """
            uniform normal.in_place bernoulli cauchy exponential geometric log_normal""",
        "torch's shape rule fails": """
            nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
            nn.functional.upsample_nearest view_copy""",
    }
)

# Results that hold memory that was never written: metadata is compared, values are not.
UNDEFINED_VALUES = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
# Error inputs after which eager leaves memory that was never written: it has made `out` larger
# before it refuses.
UNDEFINED_AFTER_ERROR = {"cat error input 8"}
# Where eager itself reads memory that is not the tensor's.
UNDEFINED_EXPANDED = {"masked.median"}

# LAPACK's last bits depend on where its input lies in memory; and torch computes singular values
# together with the vectors where the input might be differentiated, which it cannot tell of a
# tensor that is being recorded.
LAPACK = names("""
    linalg.eigvalsh linalg.svdvals linalg.cond linalg.matrix_rank linalg.lstsq
    linalg.lstsq.grad_oriented linalg.norm linalg.matrix_norm norm
""")

# Results of kernels that need not be eager's to the last bit: the vector functions are others (both
# are within one unit in the last place), or eager rounds where we do not.
MATHS = names("""
    acos acosh asin asinh atan atan2 atanh cos cosh sin sinh tan tanh exp exp2 expm1 log log10 log1p
    log2 pow __rpow__ float_power sqrt rsqrt sigmoid erf erfc logit nn.functional.silu
    nn.functional.mish nn.functional.gelu nn.functional.elu nn.functional.celu nn.functional.selu
    nn.functional.logsigmoid nn.functional.softplus special.erfcx special.ndtr special.log_ndtr
    special.ndtri special.xlog1py xlogy special.entr logaddexp logaddexp2 ldexp hypot sinc angle
    nn.functional.glu nn.functional.tanhshrink erfinv logspace signal.windows.kaiser i0 special.i0e
    special.i1 special.i1e special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
    special.spherical_bessel_j0 special.modified_bessel_i0 special.modified_bessel_i1
    special.modified_bessel_k0 special.modified_bessel_k1 special.scaled_modified_bessel_k0
    special.scaled_modified_bessel_k1 polar
""")

# Sums that kernels take in another order.
SUMS = names("""
    __rmatmul__ addbmm addmm addmm.decomposed addmv addr baddbmm bmm dot inner linalg.matrix_power
    matmul mm mv outer linalg.multi_dot linalg.vecdot tensordot einsum kron vdot
    nn.functional.bilinear nn.functional.linear nn.functional.conv1d nn.functional.conv2d
    nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
    nn.functional.conv_transpose3d nn.functional.scaled_dot_product_attention sum mean var
    var.unbiased std std.unbiased var_mean var_mean.unbiased std_mean std_mean.unbiased prod nansum
    nanmean logsumexp cumsum cumprod logcumsumexp cumulative_trapezoid trapezoid trapz
    linalg.vector_norm dist cdist renorm svd_lowrank pca_lowrank nn.functional.pdist sum_to_size
    trace norm.fro norm.inf norm.nuc softmax _softmax_backward_data softmax.with_dtype log_softmax
    log_softmax.with_dtype nn.functional.softmin nn.functional.softmin.with_dtype native_layer_norm
    torch.ops.aten._safe_softmax.default
    nn.functional.layer_norm native_group_norm nn.functional.group_norm nn.functional.rms_norm
    native_batch_norm _native_batch_norm_legit _batch_norm_with_update nn.functional.batch_norm
    nn.functional.instance_norm nn.functional.local_response_norm nn.functional.normalize
    nn.functional.cosine_similarity nn.functional.cosine_embedding_loss
    nn.functional.pairwise_distance nn.functional.triplet_margin_loss
    nn.functional.triplet_margin_with_distance_loss nn.functional.avg_pool1d
    nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.adaptive_avg_pool1d
    nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d nn.functional.cross_entropy
    nn.functional.nll_loss nn.functional.mse_loss nn.functional.l1_loss nn.functional.smooth_l1_loss
    nn.functional.huber_loss nn.functional.kl_div nn.functional.poisson_nll_loss
    nn.functional.binary_cross_entropy nn.functional.soft_margin_loss
    nn.functional.margin_ranking_loss nn.functional.hinge_embedding_loss
    nn.functional.multilabel_margin_loss nn.functional.multilabel_soft_margin_loss
    nn.functional.multi_margin_loss nn.functional.gaussian_nll_loss
    nn.functional.binary_cross_entropy_with_logits nn.functional.embedding_bag
    nn.functional.interpolate.bilinear nn.functional.interpolate.bicubic
    nn.functional.interpolate.linear nn.functional.interpolate.trilinear
    nn.functional.interpolate.area nn.functional.upsample_bilinear nn.functional.grid_sample
    grid_sampler_2d grid_sampler_3d nn.functional.linear_cross_entropy
    nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none
    scatter_add index_add scatter_reduce.sum scatter_reduce.mean scatter_reduce.prod
    index_reduce.mean index_reduce.prod masked.sum masked.mean masked.prod masked.var masked.std
    masked.norm masked.logsumexp masked.softmax masked.log_softmax masked.softmin masked.normalize
    masked.cumsum masked.cumprod masked.logaddexp
""")

# The softmax of scores near a thousand multiplies the roundings of the gemms before it by as much.
ATTENTION = names("nn.functional.multi_head_attention_forward")

# Differences of values near 1, which may cancel to 0.
WINDOWS = names("""
    signal.windows.nuttall signal.windows.hamming signal.windows.general_hamming
    signal.windows.general_cosine signal.windows.blackman signal.windows.cosine signal.windows.hann
    signal.windows.gaussian
""")


class Closeness(NamedTuple):
    """How many units in the last place of the largest value, or of `least`, a result may be from
    eager's; 0: equal."""

    roundings: int
    least: float = 0.0


# Series of other lengths than ATen's, whose results grow without bound near the poles or whose
# terms cancel.
SERIES = names("""
    digamma polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_2
    polygamma.polygamma_n_3 polygamma.polygamma_n_4 special.polygamma.special_polygamma_n_0
    special.zeta special.airy_ai igamma igammac
""")

# Sines and cosines of an angle, times the degree.
POLYNOMIALS = names("""
    special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
    special.chebyshev_polynomial_w special.shifted_chebyshev_polynomial_t
    special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
    special.shifted_chebyshev_polynomial_w
""")


CLOSENESS = (
    dict.fromkeys(MATHS, Closeness(4))
    | dict.fromkeys(SUMS, Closeness(16))
    | dict.fromkeys(SERIES, Closeness(16))
    | dict.fromkeys(POLYNOMIALS, Closeness(16))
    | dict.fromkeys(ATTENTION, Closeness(256))
    | dict.fromkeys(WINDOWS, Closeness(4, least=1.0))
)
EQUAL = Closeness(0)
# Eager's products are fused additions where it has no vectors: behind the last whole one, and where
# numbers are not contiguous.
OF_COMPLEX_PRODUCTS = Closeness(4)


def closeness_of(name: str, kernels: bool, dtype: str = "float32") -> Closeness:
    """How close an entry's results must be."""
    if name in LAPACK:
        return Closeness(64)
    if not kernels:
        return EQUAL
    return CLOSENESS.get(name, OF_COMPLEX_PRODUCTS if dtype.startswith("complex") else EQUAL)
