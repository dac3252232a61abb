"""The controller's decisions, pure: a snapshot of the cluster in, actions with their reasons out."""
