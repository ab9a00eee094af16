"""The brushes of the phantom source: one painter for each modality, all on one canvas of noise and soft shapes."""
