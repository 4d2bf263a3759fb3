package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

const slotCount = 16384

// startCluster starts masters, spreads the slots evenly over them, and waits until all masters know the others.
func (d *deployment) startCluster(ctx context.Context, masters int) error {
	for i := range masters {
		file := filepath.Join(d.files, fmt.Sprintf("nodes-%d.conf", i))
		node, err := startRedis(ctx, "--cluster-enabled", "yes", "--cluster-config-file", file)
		if err != nil {
			return err
		}
		d.servers = append(d.servers, node)
		for _, other := range d.servers[:i] {
			host, port, err := net.SplitHostPort(other.address)
			if err != nil {
				return err
			}
			if err := node.control.ClusterMeet(ctx, host, port).Err(); err != nil {
				return err
			}
		}
		if err := node.control.ClusterAddSlotsRange(ctx, slotCount*i/masters, slotCount*(i+1)/masters-1).Err(); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		complete, err := d.isComplete(ctx)
		if err != nil || complete {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the cluster of %d masters is not complete", masters)
		}
	}
}

// isComplete reports whether every master knows the owner of each slot and the addresses of all others.
func (d *deployment) isComplete(ctx context.Context) (bool, error) {
	for _, node := range d.servers {
		info, err := node.control.ClusterInfo(ctx).Result()
		if err != nil {
			return false, err
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(d.servers))) {
			return false, nil
		}
	}
	return true, nil
}
