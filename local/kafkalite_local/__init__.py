"""The embedded control plane of local mode."""
