"""Data in one shape: sources of pairs, splits, loading and augmentation."""
