"""Mask in, image out: mask-conditioned diffusion through diffusers' own classes."""
