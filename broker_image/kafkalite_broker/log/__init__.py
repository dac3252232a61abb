"""The data directory of a broker: the real disk, its logs, checkpoints and strays, and group commit."""
