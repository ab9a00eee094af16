"""Image → mask: train a segmenter, judge it, use it."""
