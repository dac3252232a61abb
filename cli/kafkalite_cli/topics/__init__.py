"""`kafkalite topics`: topics are custom resources, so this works wherever a kubeconfig works."""
