"""Several seeds of one training in one process: their parameters stacked, their updates one sequence of kernels.

A network of 42 thousand parameters leaves a GPU idle between its kernels. Five of them cost hardly more than one when
each kernel works for all, and a CUDA graph takes the host out of the way. What a member computes is what `seg train`
with its seed computes, to rounding; its folder is a run of `seg train` like any other.
"""
