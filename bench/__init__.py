"""Measures ShaleFS beside its peers: `make bench`, or `python -m bench --help`."""
