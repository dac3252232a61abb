"""The broker's side of the control plane: watches, registration, compare-and-swaps, the Lease."""
