package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// applyEtcd chooses the store. A flag that only etcd has selects etcd as the store, and one that only members have selects members.
func applyEtcd(f *pflag.FlagSet, c *config.Config) {
	if f.Changed("storage") {
		return
	}
	f.Visit(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, "etcd-") {
			c.Storage.Backend = config.StorageEtcd
		}
		switch flag.Name {
		case "cluster-init", "cluster-reset", "join":
			c.Storage.Backend = config.StorageMembers
		}
	})
}
