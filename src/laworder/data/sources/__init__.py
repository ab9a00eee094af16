"""Where pairs come from: one module for each kind of source, all behind `laworder.data.pairs.Source`."""
