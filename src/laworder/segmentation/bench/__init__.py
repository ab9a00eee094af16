"""Which backend runs a segmenter fastest on this machine?"""
