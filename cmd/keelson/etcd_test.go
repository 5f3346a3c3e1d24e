package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/server"
)

func TestEtcdFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, server.StorageEmbedded},
		{[]string{"--etcd-servers=http://a:1,http://b:1"}, server.StorageEtcd},
		{[]string{"--etcd-prefix=/x"}, server.StorageEtcd},
		{[]string{"--lease-reuse-duration-seconds=5"}, server.StorageEmbedded},
		{[]string{"--storage=memory", "--etcd-servers=http://a:1"}, server.StorageMemory},
	} {
		config := server.DefaultConfig()
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.StringVar(&config.Storage, "storage", config.Storage, "")
		etcdFlags(f, &config.Etcd)
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		applyEtcd(f, &config)
		if config.Storage != c.want {
			t.Errorf("%v: %s, want %s", c.args, config.Storage, c.want)
		}
		if reuse := config.Etcd.LeaseReuse; len(c.args) == 0 && reuse != time.Minute {
			t.Errorf("%v: leases reused for %v", c.args, reuse)
		}
	}
}
