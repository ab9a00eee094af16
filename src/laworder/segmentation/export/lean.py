r"""The same function with fewer operations: what training needs and inference does not is worked into the weights.

- Batch norm behind a convolution scales and shifts its output channels: w' = w γ/σ, b' = β − μ γ/σ.
- A channel shuffle before a 1×1 convolution is a permutation of that convolution's input channels.
- Attention: with n the normalised tokens without the norm's weight (C of them a token), both linear maps of
  S_h = (W_q n_d)ᵀ (W_k n_e) are one C×C matrix A_h = W_qᵀ W_k, and those behind the softmax another, O_h = Proj_h W_v.
  Keys and values of all heads are then the tokens themselves, and a head works on C channels in place of its own 32:

      R_d = Σ_h O_h softmax(n_dᵀ A_h n_e / √d_h) n_e       R_e = Σ_h O'_h softmax(n_eᵀ A_hᵀ n_d / √d_h) n_d
- The last doubling and the head: the doubled map has four pixels for each pixel of the map before it, and each of the
  four is a fixed 3×3 convolution of that map (its edge repeated). With those four as channels, ReLU and head work at
  half the size, and one pixel shuffle at the end lays the four logits out.

Every rewrite is exact up to rounding; where C exceeds the heads' own width the attention stays as it is.
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.order.attention import BidirectionalAttention
from laworder.order.backbone import MultiKernelUNet
from laworder.order.base import Segmenter
from laworder.order.blocks import MKIR, channel_shuffle


def lean(model: Segmenter) -> Segmenter:
    """A copy of a 2-D segmenter on the CPU, in eval mode, that computes the same with fewer operations."""
    result = copy.deepcopy(model).cpu().eval()
    for parent in list(result.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, MKIR):
                setattr(parent, name, LeanMKIR(part))
            elif isinstance(part, BidirectionalAttention) and part.norm_d.weight.numel() <= _head_width(part):
                setattr(parent, name, LeanAttention(part))
    if isinstance(result, MultiKernelUNet):
        result.enlarge[-1], result.head = nn.Identity(), LeanHead(result.head)
    return result.requires_grad_(requires_grad=False)


def _head_width(attention: BidirectionalAttention) -> int:
    return _matrix(attention.q_d).shape[0] // attention.heads


def _matrix(convolution: nn.Module) -> Float[Tensor, "o i"]:
    """The weights of a 1×1 convolution, in float64."""
    return cast("Tensor", convolution.weight).detach().flatten(1).double()


def with_norm(convolution: nn.Module, norm: nn.Module) -> nn.Conv2d:
    """One convolution with bias in place of a convolution without and the batch norm behind it."""
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert convolution.bias is None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
    result = nn.Conv2d(
        convolution.in_channels,
        convolution.out_channels,
        cast("tuple[int, int]", convolution.kernel_size),
        padding=cast("tuple[int, int]", convolution.padding),
        groups=convolution.groups,
        dtype=convolution.weight.dtype,
    )
    assert result.bias is not None
    with torch.no_grad():
        result.weight.copy_(convolution.weight.double() * scale.view(-1, 1, 1, 1))
        result.bias.copy_(norm.bias.double() - norm.running_mean.double() * scale)
    return result


class LeanMKIR(nn.Module):
    """`MKIR` without batch norms and without the shuffle."""

    def __init__(self, block: MKIR) -> None:
        super().__init__()
        self.expand = with_norm(*_pair(block.expand))
        self.depthwise = nn.ModuleList(with_norm(*_pair(branch)) for branch in block.depthwise)
        self.project = with_norm(*_pair(block.project))
        self.shortcut = block.shortcut
        width = self.project.in_channels
        order = channel_shuffle(torch.arange(width).view(1, -1, 1, 1), block.groups).flatten()
        with torch.no_grad():  # input j of Proj is channel order[j]
            self.project.weight[:, order] = self.project.weight.clone()

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h w"]:
        wide = F.relu6(self.expand(x))
        mixed = F.relu6(self.depthwise[0](wide))
        for branch in self.depthwise[1:]:
            mixed = mixed + F.relu6(branch(wide))
        return self.shortcut(x) + self.project(mixed)


class LeanHead(nn.Module):
    """Doubling, ReLU and the 1×1 head, in this order, from the map before the doubling."""

    corners: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        weight, bias = cast("Tensor", head.weight).detach().flatten(1), cast("Tensor", head.bias).detach()
        classes, channels = weight.shape
        # Bilinear, corners not aligned: of two pixels the first is ¼ of the left neighbour and ¾ of its own place.
        taps = weight.new_tensor([[0.25, 0.75, 0.0], [0.0, 0.75, 0.25]])
        each = torch.einsum("yi,xj->yxij", taps, taps).flatten(0, 1)
        eye = torch.eye(channels, dtype=weight.dtype)
        self.register_buffer("corners", torch.einsum("pij,oc->pocij", each, eye).flatten(0, 1))
        four = torch.eye(4, dtype=weight.dtype)
        self.register_buffer("weight", torch.einsum("kc,pq->kpqc", weight, four).reshape(4 * classes, -1, 1, 1))
        self.register_buffer("bias", bias.repeat_interleave(4))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h2 w2"]:
        four = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), self.corners)
        return F.pixel_shuffle(F.conv2d(F.relu(four), self.weight, self.bias), 2)


def _pair(block: nn.Module) -> tuple[nn.Module, nn.Module]:
    assert isinstance(block, nn.Sequential)
    return block[0], block[1]


class LeanAttention(nn.Module):
    """`BidirectionalAttention` on the C channels of its tokens, as the formulas above state it."""

    mix: Tensor
    out_d: Tensor
    out_e: Tensor
    bias_d: Tensor
    bias_e: Tensor

    def __init__(self, attention: BidirectionalAttention) -> None:
        super().__init__()
        heads, channels = attention.heads, attention.norm_d.weight.numel()
        on_d = attention.norm_d.weight.detach().double()
        on_e = attention.norm_e.weight.detach().double()
        q, v_d = (_matrix(part).view(heads, -1, channels) * on_d for part in (attention.q_d, attention.v_d))
        k, v_e = (_matrix(part).view(heads, -1, channels) * on_e for part in (attention.k_e, attention.v_e))
        proj_d, proj_e = (_matrix(p).view(channels, heads, -1) for p in (attention.proj_d, attention.proj_e))
        self.heads, self.eps, self.gate = heads, attention.norm_d.eps, attention.gate
        like = attention.norm_d.weight.dtype
        self.register_buffer("mix", (q.transpose(1, 2) @ k / q.shape[1] ** 0.5).to(like))
        self.register_buffer("out_d", torch.einsum("ohw,hwc->hco", proj_d, v_e).to(like))
        self.register_buffer("out_e", torch.einsum("ohw,hwc->hco", proj_e, v_d).to(like))
        biases = (cast("Tensor", part.bias).detach() for part in (attention.proj_d, attention.proj_e))
        for name, bias in zip(("bias_d", "bias_e"), biases, strict=True):
            self.register_buffer(name, bias)

    def forward(self, d: Float[Tensor, "b c h w"], e: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        n_d, n_e = self._tokens(d), self._tokens(e)
        q = n_d @ self.mix
        k, v = (n.expand(-1, self.heads, -1, -1) for n in (n_e, n_d))
        r_d = F.scaled_dot_product_attention(q, k, k, scale=1.0)
        r_e = F.scaled_dot_product_attention(k, q, v, scale=1.0)
        delta = (r_d @ self.out_d + r_e @ self.out_e).sum(1) + (self.bias_d + self.bias_e)
        return d + e + self.gate(d, e) * torch.unflatten(delta.transpose(1, 2), 2, d.shape[2:])

    def _tokens(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1 n c"]:
        """RMS-normalised tokens, without the norm's weight."""
        tokens = x.flatten(2).transpose(1, 2).unsqueeze(1)
        return tokens * torch.rsqrt(tokens.square().mean(-1, keepdim=True) + self.eps)
