package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	cniFile = "/etc/cni/net.d/10-node-network.conflist"
	// Marks the routes that are ours (rtnetlink's field protocol; its numbers from 4 on are free for daemons).
	routeProtocol = 107
)

// nodeNetwork connects the pods of nodes that share a network: pods of a node get addresses of its podCIDR behind pairs of
// virtual devices, and every node has a route to the podCIDR of each other node. There is no NetworkPolicy, and no address
// translation: nothing but the nodes knows a way back to a pod.
type nodeNetwork struct {
	node     string
	informer cache.SharedIndexInformer
	nodes    interface {
		List(labels.Selector) ([]*corev1.Node, error)
	}
	written string
}

func newNodeNetwork(node string, _ kubernetes.Interface, factory informers.SharedInformerFactory) agent {
	nodes := factory.Core().V1().Nodes()
	return &nodeNetwork{node: node, informer: nodes.Informer(), nodes: nodes.Lister()}
}

func (n *nodeNetwork) watched() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{n.informer}
}

func (n *nodeNetwork) sync(context.Context) error {
	nodes, err := n.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	gateways := map[string]net.IP{} // podCIDR of another node -> address of that node
	for _, node := range nodes {
		if node.Spec.PodCIDR == "" {
			continue
		}
		if node.Name == n.node {
			if err := n.writeConfiguration(node.Spec.PodCIDR); err != nil {
				return err
			}
		} else if address := internalIP(node); address != nil {
			gateways[node.Spec.PodCIDR] = address
		}
	}
	return setRoutes(gateways)
}

func internalIP(node *corev1.Node) net.IP {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return net.ParseIP(address.Address)
		}
	}
	return nil
}

func setRoutes(gateways map[string]net.IP) error {
	for cidr, gateway := range gateways {
		_, destination, err := net.ParseCIDR(cidr)
		if err != nil {
			return err
		}
		route := netlink.Route{Dst: destination, Gw: gateway, Protocol: routeProtocol}
		if err := netlink.RouteReplace(&route); err != nil {
			return fmt.Errorf("route to %s by %s: %w", cidr, gateway, err)
		}
	}
	ours, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return err
	}
	for _, route := range ours {
		if _, wanted := gateways[route.Dst.String()]; !wanted {
			if err := netlink.RouteDel(&route); err != nil {
				return fmt.Errorf("old route to %s: %w", route.Dst, err)
			}
		}
	}
	return nil
}

// writeConfiguration tells the container runtime how to connect a pod. A node is not Ready before.
func (n *nodeNetwork) writeConfiguration(podCIDR string) error {
	if n.written == podCIDR {
		return nil
	}
	text, err := json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0",
		"name":       "node-network",
		"plugins": []any{
			map[string]any{
				"type": "ptp",
				"ipam": map[string]any{
					"type":    "host-local",
					"dataDir": "/run/node-network", // forgotten when the node starts anew, as its pods are
					"ranges":  [][]map[string]string{{{"subnet": podCIDR}}},
					"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
				},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	// The runtime must never read half of it, nor take the new file for a second network.
	temporary := filepath.Join(filepath.Dir(cniFile), ".node-network")
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(temporary, cniFile); err != nil {
		return err
	}
	n.written = podCIDR
	log.Printf("pods of this node are in %s", podCIDR)
	return nil
}
