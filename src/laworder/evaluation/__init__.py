"""How good is a generator: judges of a folder of generated pairs against a folder of real ones."""
