"""Commands about the cluster of this machine: up, down, clean, kill, logs."""
