"""The commands `laworder data …`."""
