"""`kafkalite restart` and `kafkalite decommission`: work on brokers, one after the other, without a loss."""
