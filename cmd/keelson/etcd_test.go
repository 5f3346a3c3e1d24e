package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

func TestEtcdFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, config.StorageEmbedded},
		{[]string{"--etcd-servers=http://a:1,http://b:1"}, config.StorageEtcd},
		{[]string{"--etcd-prefix=/x"}, config.StorageEtcd},
		{[]string{"--lease-reuse-duration-seconds=5"}, config.StorageEmbedded},
		{[]string{"--storage=memory", "--etcd-servers=http://a:1"}, config.StorageMemory},
	} {
		got := config.Default()
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		configFlags(f, &got)
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		applyEtcd(f, &got)
		if got.Storage.Backend != c.want {
			t.Errorf("%v: %s, want %s", c.args, got.Storage.Backend, c.want)
		}
		if reuse := got.Storage.Etcd.LeaseReuse; len(c.args) == 0 && reuse != time.Minute {
			t.Errorf("%v: leases reused for %v", c.args, reuse)
		}
	}
}
