"""Selective bidirectional skip attention, section 3.2.2 of the paper, in two forms that agree.

With decoder tokens d and encoder tokens e of one skip stage (N = H·W tokens of width C, or D·H·W in 3-D):

    Q_d, V_d = W_q n(d), W_v n(d)     K_e, V_e = W_k n(e), W_v' n(e)     n: RMSNorm over the channels of a token
    S   = Q_d K_eᵀ / √d_h
    R_d = softmax(S) V_e              R_e = softmax(Sᵀ) V_d
    Δ_d = Proj_d(R_d)                 Δ_e = Proj_e(R_e)
    c   = σ(W₂ ReLU(W₁ [GAP(e); GAP(d)]))
    d'  = d + c Δ_d                   e'  = e + c Δ_e

softmax(S) and softmax(Sᵀ) are each normalised over their own last axis: the second is not the first transposed,
whose rows would not sum to one. Because Sᵀ = K_e Q_dᵀ / √d_h, both directions are plain scaled dot-product
attentions, (Q_d, K_e, V_e) and (K_e, Q_d, V_d), and the `exact` form never builds an N×N matrix.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError, nearest
from laworder.order.blocks import conv, global_mean

Form = Literal["exact", "reference"]


class ChannelRMSNorm(nn.Module):
    """RMSNorm over the channels of each token of a map: x / √(mean_c x² + ε) · weight, without bias."""

    def __init__(self, channels: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.eps = eps

    def forward(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        # Squares of half-precision values overflow from 256 on, so the mean is taken in float32 at least.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + self.eps).to(x.dtype)
        return x * scale * self.weight.view(-1, *[1] * (x.ndim - 2))


class ConfidenceGate(nn.Module):
    """c = σ(W₂ ReLU(W₁ [GAP(e); GAP(d)])): one scalar per sample; W₁ is 2C → max(1, C/4), W₂ is → 1."""

    def __init__(self, *, channels: int, spatial_dims: int = 2) -> None:
        super().__init__()
        hidden = max(1, channels // 4)
        self.hidden = conv(2 * channels, hidden, dims=spatial_dims, bias=True)
        self.score = conv(hidden, 1, dims=spatial_dims, bias=True)

    def forward(self, d: Float[Tensor, "b c *size"], e: Float[Tensor, "b c *size"]) -> Float[Tensor, "b 1 *ones"]:
        pooled = torch.cat((global_mean(e), global_mean(d)), dim=1)
        return torch.sigmoid(self.score(torch.relu(self.hidden(pooled))))


class BidirectionalAttention(nn.Module):
    """The fused skip d' + e' of one stage; a closed gate (c = 0) leaves d + e bit for bit.

    `form` chooses how R_d and R_e are computed: `exact` (two attention calls, memory O(N)) or `reference` (the
    formula above, memory O(N²), the oracle of the tests). It changes no parameter and may be set at any time.
    """

    def __init__(
        self, *, channels: int, heads: int = 2, head_width: int = 32, spatial_dims: int = 2, form: Form = "exact"
    ) -> None:
        super().__init__()
        if heads < 1 or head_width < 1:
            raise UserError(f"heads and head_width must be at least 1, not {heads} and {head_width}")
        if form not in get_args(Form):
            raise UserError(f"form must be 'exact' or 'reference', not {form!r}{nearest(form, get_args(Form))}")
        self.heads, self.form = heads, form
        inner, dims = heads * head_width, spatial_dims
        self.norm_d, self.norm_e = ChannelRMSNorm(channels), ChannelRMSNorm(channels)
        self.q_d, self.v_d = conv(channels, inner, dims=dims), conv(channels, inner, dims=dims)
        self.k_e, self.v_e = conv(channels, inner, dims=dims), conv(channels, inner, dims=dims)
        self.proj_d = conv(inner, channels, dims=dims, bias=True)
        self.proj_e = conv(inner, channels, dims=dims, bias=True)
        self.gate = ConfidenceGate(channels=channels, spatial_dims=dims)

    def forward(self, d: Float[Tensor, "b c *size"], e: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        d_tokens, e_tokens = self.norm_d(d), self.norm_e(e)
        q, v_d = split_heads(self.q_d(d_tokens), self.heads), split_heads(self.v_d(d_tokens), self.heads)
        k, v_e = split_heads(self.k_e(e_tokens), self.heads), split_heads(self.v_e(e_tokens), self.heads)
        attend = exact_attention if self.form == "exact" else reference_attention
        r_d, r_e = attend(q, k, v_d, v_e)
        c = self.gate(d, e)
        return (d + c * self.proj_d(join_heads(r_d, d))) + (e + c * self.proj_e(join_heads(r_e, e)))


def split_heads(x: Float[Tensor, "b inner *size"], heads: int) -> Float[Tensor, "b heads n width"]:
    """A map as contiguous tokens per head. With strided views the CPU's attention falls back to its N×N path."""
    return torch.unflatten(x.flatten(2), 1, (heads, -1)).transpose(2, 3).contiguous()


def join_heads(r: Float[Tensor, "b heads n width"], like: Float[Tensor, "b c *size"]) -> Float[Tensor, "b inner *size"]:
    """Tokens per head back to a map of the size of `like`."""
    return torch.unflatten(r.transpose(2, 3).flatten(1, 2), 2, like.shape[2:])


def reference_attention(
    q: Float[Tensor, "b h n w"],
    k: Float[Tensor, "b h n w"],
    v_d: Float[Tensor, "b h n w"],
    v_e: Float[Tensor, "b h n w"],
) -> tuple[Float[Tensor, "b h n w"], Float[Tensor, "b h n w"]]:
    """(R_d, R_e) as the paper writes them, through the N×N matrix S."""
    S = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    return torch.softmax(S, dim=-1) @ v_e, torch.softmax(S.transpose(2, 3), dim=-1) @ v_d


def exact_attention(
    q: Float[Tensor, "b h n w"],
    k: Float[Tensor, "b h n w"],
    v_d: Float[Tensor, "b h n w"],
    v_e: Float[Tensor, "b h n w"],
) -> tuple[Float[Tensor, "b h n w"], Float[Tensor, "b h n w"]]:
    """(R_d, R_e) by two fused attentions: the second swaps queries and keys, which transposes S."""
    return F.scaled_dot_product_attention(q, k, v_e), F.scaled_dot_product_attention(k, q, v_d)
