"""`kafkalite rebalance`: even out replicas and preferred leaders."""
