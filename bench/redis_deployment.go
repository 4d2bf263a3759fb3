package main

import (
	"context"
	"os"
)

// A shape is an arrangement of servers.
type shape int

const (
	single  shape = iota
	cluster       // of masters
	ring          // of servers that do not know each other
)

// A deployment is the Redis that the limiters of a comparison share.
type deployment struct {
	shape    shape
	settings clientSettings
	servers  []*redisServer
	files    string // directory for the files of cluster nodes
}

// deploy starts servers. The caller stops them.
func deploy(ctx context.Context, of shape, servers int, settings clientSettings) (*deployment, error) {
	d := &deployment{shape: of, settings: settings}
	if err := d.start(ctx, servers); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *deployment) start(ctx context.Context, servers int) error {
	if d.shape == cluster {
		files, err := os.MkdirTemp("", "bench-cluster-")
		if err != nil {
			return err
		}
		d.files = files
		return d.startCluster(ctx, servers)
	}
	for range servers {
		s, err := startRedis(ctx)
		if err != nil {
			return err
		}
		d.servers = append(d.servers, s)
	}
	return nil
}

func (d *deployment) stop() {
	for _, s := range d.servers {
		s.stop()
	}
	if d.files != "" {
		os.RemoveAll(d.files)
	}
}

// usage returns what all servers have used.
func (d *deployment) usage(ctx context.Context) (redisUsage, error) {
	var sum redisUsage
	for _, s := range d.servers {
		u, err := s.usage(ctx)
		if err != nil {
			return redisUsage{}, err
		}
		sum = sum.plus(u)
	}
	return sum, nil
}
