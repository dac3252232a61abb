// CoreDNS and two agents for the nodes of a test cluster, in one binary; the first argument says which of them runs.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	lookAgainAfter = 10 * time.Second // files and routes may be changed behind our back
	retryAfter     = time.Second
)

func main() {
	programs := map[string]func(){
		"coredns":       runCoreDNS,
		"node-network":  func() { runAgent(newNodeNetwork) },
		"local-volumes": func() { runAgent(newLocalVolumes) },
	}
	if len(os.Args) > 1 {
		if run, known := programs[os.Args[1]]; known {
			os.Args = append([]string{os.Args[1]}, os.Args[2:]...) // CoreDNS reads the rest as flags
			run()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: addons coredns|node-network|local-volumes [ARGUMENT ...]")
	os.Exit(2)
}

// An agent brings its node in line with what the API server says.
type agent interface {
	// watched are the informers whose events lead to a call of sync.
	watched() []cache.SharedIndexInformer
	sync(ctx context.Context) error
}

func runAgent(make func(node string, client kubernetes.Interface, factory informers.SharedInformerFactory) agent) {
	node := os.Getenv("NODE_NAME")
	if node == "" {
		log.Fatal("NODE_NAME is not set: the pod takes it from its field spec.nodeName")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	keepInLine(ctx, make(node, client, factory), factory)
}

func keepInLine(ctx context.Context, agent agent, factory informers.SharedInformerFactory) {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // it will look anyway
		}
	}
	for _, informer := range agent.watched() {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { tell() },
			UpdateFunc: func(any, any) { tell() },
			DeleteFunc: func(any) { tell() },
		}); err != nil {
			log.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		wait := lookAgainAfter
		if err := agent.sync(ctx); err != nil {
			log.Print(err)
			wait = retryAfter
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(wait):
		}
	}
}
