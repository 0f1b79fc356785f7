"""Speed, with the floor beside each figure: ``python -m bench [part ...]``."""
