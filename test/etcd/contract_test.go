package etcd

import (
	"slices"
	"testing"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/test/contract"
)

// TestContract replays the recorded requests on a server on etcd and on a server on the embedded engine. Each scenario
// must pass on both or fail on both; test/contract lists the scenarios that fail. Without KEELSON_LONG it replays a
// sample.
func TestContract(t *testing.T) {
	scenarios, err := contract.Recorded("../contract/testdata")
	if err != nil {
		t.Fatal(err)
	}
	if !long() {
		scenarios = slices.DeleteFunc(scenarios, func(s *contract.Scenario) bool { return !s.Sampled() })
	}
	results := func(adjust func(*config.Config)) [][]contract.StepResult {
		s := keelson.ForTest(t, func(c *config.Config) {
			if err := contract.Configure(c, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			c.Storage.Etcd.HealthcheckTimeout, c.Storage.Etcd.ReadycheckTimeout = patience, patience // long, for a busy machine
			adjust(c)
		})
		client := contract.NewClient(s.URL(), contract.Token)
		defer client.Close()
		return contract.Replay(t.Context(), client, scenarios)
	}
	embedded := results(func(c *config.Config) { c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, t.TempDir() })
	c := start(t, 1, nil)
	onEtcd := results(
		func(conf *config.Config) {
			conf.Storage.Backend, conf.Storage.Etcd.Servers = config.StorageEtcd, c.endpoints()
		},
	)
	passed := 0
	for i, s := range scenarios {
		want, got := contract.Failures(embedded[i]), contract.Failures(onEtcd[i])
		if len(want)+len(got) == 0 {
			passed++
		}
		if !slices.EqualFunc(want, got, func(a, b *contract.StepResult) bool { return a.Index() == b.Index() }) {
			t.Errorf("%s\non the embedded engine: %v\non etcd: %v", s.Name, want, got)
		}
	}
	if passed < len(scenarios)*3/4 {
		t.Errorf("%d of %d scenarios pass", passed, len(scenarios))
	}
	t.Logf("%d scenarios, %d pass on both", len(scenarios), passed)
}
