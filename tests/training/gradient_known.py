"""What is known of gradients of entries of the operator database, beside opdb_known.py."""

from __future__ import annotations

from opdb_known import by_name

# Entries that run in eager where gradients are needed, by the reason.
EAGER_GRADIENTS: dict[str, str] = by_name(
    {
        "views that autograd tracks in a form of their own": "unsafe_chunk as_strided",
        "eager looks at the values of a gradient by complex vectors": "linalg.eig",
        "drivers gelsd and gelss: the residuals depend on data": """
            linalg.lstsq linalg.lstsq.grad_oriented""",
    }
)

# Entries that are wrong today, by the reason. One that is right fails the test: the table only
# shrinks.
GAPS: dict[str, str] = by_name(
    {
        "torch goes another way for what is no plain tensor, to another layout": "ormqr",
    }
)

# Roundings of the largest value that ill-conditioned gradients may be off by.
NOISY: dict[str, int] = {
    # Of one element, whose gradient is nothing but the roundings of terms of 1 / sqrt(eps).
    "native_layer_norm": 2048,
    "nn.functional.layer_norm": 2048,
    # Reflections are undone by divisions: with MKL's AVX-512 kernels eager is twice as far from
    # f64 as ours.
    "linalg.householder_product": 512,
}

# Gradients that eager itself leaves undefined.
UNDEFINED_GRADIENTS: set[str] = set()
