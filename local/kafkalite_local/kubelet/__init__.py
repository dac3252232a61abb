"""The process kubelet: StatefulSets become pods, pods become local processes with a true status."""
