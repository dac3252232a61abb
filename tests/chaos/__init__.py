"""Faults on the real processes of a local cluster, under load, and a judgement of what the clients saw.

`python -m tests.chaos --help` shows the ways to run it.
"""
