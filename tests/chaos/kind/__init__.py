"""Chaos on the cluster of `make kind-up`: pods, nodes and the control plane are harmed, and the same judges judge.

See docs/chaos.md.
"""
