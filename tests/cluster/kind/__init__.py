"""A kind cluster for tests: one control-plane node, three workers in three zones, volumes that can grow, our images."""
