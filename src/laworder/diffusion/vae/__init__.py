"""Fitting an autoencoder to the user's own images, for backbone `small`."""
