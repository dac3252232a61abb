// The first process of a pod's sandbox: it holds the namespaces that the containers share, and buries orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		// One signal may stand for several children.
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
}
