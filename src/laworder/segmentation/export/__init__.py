"""A segmenter as one file for other runtimes: uint8 images in, masks and probabilities out."""
