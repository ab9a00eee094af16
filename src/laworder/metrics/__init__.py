"""How good is it: overlap of masks, and later the distance between sets of images."""
