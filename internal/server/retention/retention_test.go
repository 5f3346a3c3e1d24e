package retention

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
)

func TestRetention(t *testing.T) {
	const events, leases = "/registry/events/=0s", "/registry/leases/=0s"
	for _, c := range []struct {
		backend string
		values  []string
		want    string
	}{
		{config.StorageMemory, nil, ""},
		{config.StorageEmbedded, nil, events + " " + leases + " =24h0m0s"},
		{config.StorageEmbedded, []string{"pods=1h"}, "/registry/pods/=1h0m0s " + events + " " + leases + " =24h0m0s"},
		{config.StorageEmbedded, []string{"0"}, events + " " + leases + " =0s"},
		{config.StorageEmbedded, []string{"7d", "events=1h", "nodes=2d"}, "/registry/events/=1h0m0s /registry/minions/=48h0m0s " + leases + " =168h0m0s"},
		{config.StorageMemory, []string{"widgets.example.com/a=1h", "*/kube-system=7d", "pods=1h"},
			"/registry/example.com/widgets/@a=1h0m0s /registry/pods/=1h0m0s " + events + " " + leases + " @kube-system=168h0m0s"},
		{config.StorageEmbedded, []string{"pods"}, `is not TIME`},
		{config.StorageEmbedded, []string{"pods=-1h"}, `is not TIME`},
		{config.StorageEmbedded, []string{"=1h"}, `is not TIME`},
		{config.StorageEmbedded, []string{"1h", "2h"}, `has two values`},
		{config.StorageEmbedded, []string{"pod=1h"}, `there is no resource "pod"`},
	} {
		kept, err := Parse(&config.Storage{Backend: c.backend, HistoryRetention: c.values})
		var got []string
		for _, r := range kept.Rules {
			scope := r.Prefix
			if r.Namespace != "" {
				scope += "@" + r.Namespace
			}
			got = append(got, fmt.Sprint(scope, "=", r.Keep))
		}
		if err != nil && c.want != "" && strings.Contains(err.Error(), c.want) {
			continue
		}
		if text := strings.Join(got, " "); err != nil || text != c.want {
			t.Errorf("%s %q: %s, %v\nwant %s", c.backend, c.values, text, err, c.want)
		}
	}
}
