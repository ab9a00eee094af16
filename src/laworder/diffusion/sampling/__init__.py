"""From masks to a folder of synthetic pairs: which masks, which noise, how fast, and what is written beside them."""
