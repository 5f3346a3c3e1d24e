package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd/etcdtest"
)

// TestPeersConfig checks wrong configurations of peers, with which the server does not start.
func TestPeersConfig(t *testing.T) {
	off := []string{"UnknownVersionInteroperabilityProxy=false"}
	set, err := certs.Ensure(certs.Options{Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, empty := file("ca", set.CA), file("empty", nil)
	cert, key := file("cert", set.Admin.Cert), file("key", set.Admin.Key)
	for want, change := range map[string]func(*settings){
		"": func(c *settings) {
			c.Network.Peers.CAFile, c.Network.Aggregation.ProxyClientCertFile, c.Network.Aggregation.ProxyClientKeyFile = ca, cert, key
		},
		"--peer-ca-file requires UnknownVersionInteroperabilityProxy feature to be turned on": func(c *settings) {
			c.Network.Peers.CAFile, c.API.FeatureGates = ca, off
		},
		"--peer-advertise-ip requires UnknownVersionInteroperabilityProxy feature to be turned on": func(c *settings) {
			c.Network.Peers.AdvertiseIP, c.API.FeatureGates = "192.0.2.1", off
		},
		"--peer-advertise-port requires UnknownVersionInteroperabilityProxy feature to be turned on": func(c *settings) {
			c.Network.Peers.AdvertisePort, c.API.FeatureGates = "1", off
		},
		"--peer-advertise-port must be a port":                             func(c *settings) { c.Network.Peers.AdvertisePort = "https" },
		"error building peer proxy handler, proxy-cert-file not specified": func(c *settings) { c.Network.Peers.CAFile = ca },
		"--peer-ca-file: cannot read " + filepath.Join(dir, "none"):        func(c *settings) { c.Network.Peers.CAFile = filepath.Join(dir, "none") },
		"--peer-ca-file: " + empty + " has no certificates":                func(c *settings) { c.Network.Peers.CAFile = empty },
	} {
		c := defaultSettings()
		c.Storage.Backend, c.Storage.DataDir, c.Serving.Port = config.StorageEtcd, "", 0
		c.Storage.Etcd.Servers, c.Diagnostics.Log = []string{etcdtest.Serve(t)}, slog.New(slog.DiscardHandler)
		change(&c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, err := Start(ctx, c.Config, c.Options)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(config.CommandLine(err), want)) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			if err := s.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
		cancel()
	}
}
