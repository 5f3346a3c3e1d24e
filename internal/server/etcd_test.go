package server

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
)

func TestEtcdConfig(t *testing.T) {
	for text, change := range map[string]func(*settings){
		"": func(c *settings) {
			c.Storage.Backend, c.Storage.Etcd.Servers = config.StorageEtcd, []string{"http://a:1"}
		},
		"--etcd-servers must be specified":    func(c *settings) { c.Storage.Backend = config.StorageEtcd },
		"--etcd-servers needs --storage=etcd": func(c *settings) { c.Storage.Etcd.Servers = []string{"http://a:1"} },
		"--etcd-certfile and --etcd-keyfile must be given together": func(c *settings) {
			c.Storage.Backend, c.Storage.Etcd.Servers, c.Storage.Etcd.CertFile = config.StorageEtcd, []string{"a"}, "x"
		},
		"--etcd-prefix must not be empty": func(c *settings) {
			c.Storage.Backend, c.Storage.Etcd.Servers, c.Storage.Etcd.Prefix = config.StorageEtcd, []string{"a"}, "/"
		},
		"--etcd-servers-overrides invalid, must be of format: group/res": func(c *settings) {
			c.Storage.Backend, c.Storage.Etcd.Servers, c.Storage.Etcd.Overrides = config.StorageEtcd, []string{"a"}, []string{"x"}
		},
	} {
		c := defaultSettings()
		change(&c)
		err := c.validate()
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(config.CommandLine(err), text)) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
