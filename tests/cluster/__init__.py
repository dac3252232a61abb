"""A real Kubernetes control plane on loopback, for tests: etcd, kube-apiserver and kube-controller-manager, no nodes."""
