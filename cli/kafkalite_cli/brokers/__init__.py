"""`kafkalite restart`, `decommission`, `replace`: work on brokers, one after the other, without a loss."""
