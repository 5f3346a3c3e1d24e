package authorization

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/server/background"
)

// TestTheConfigurationIsReloaded replaces the file by wrong ones, which change nothing, and by one with another authorizer.
func TestTheConfigurationIsReloaded(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	const first = head + "- {type: AlwaysDeny, name: alwaysdeny}\n- {type: RBAC, name: rbac}\n"
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	work := background.New(log)
	t.Cleanup(func() { work.Stop(context.Background()) })
	z, err := New(Options{
		Config: &config.Authorization{ConfigFile: file}, Metrics: metrics.New(nil, metrics.Options{}), Work: work, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	decides := func(want authz.Decision) {
		t.Helper()
		got, reason, err := z.Authorize(t.Context(), authz.Attributes{
			User: &request.User{Name: "dave"},
			Info: &request.Info{Verb: "list", Version: "v1", Resource: "configmaps", Namespace: "default"},
		})
		if got != want || err != nil {
			t.Errorf("%v %s, %v, want %v", got, reason, err, want)
		}
	}
	use := func(text string) error { return z.use(func(string) ([]byte, error) { return []byte(text), nil }) }
	decides(authz.NoOpinion)
	for text, want := range map[string]string{
		head:                                  "at least one authorization mode must be defined",
		head + "- {type: RBAC, name: rbac}\n": "missing required types: [AlwaysDeny]",
		first + "- {type: Node, name: node}\n": "authorizer type Node is not allowed " +
			"if it was not enabled at initial server startup",
	} {
		if err := use(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	decides(authz.NoOpinion)
	if err := use(first + "- {type: AlwaysAllow, name: alwaysallow}\n"); err != nil {
		t.Fatal(err)
	}
	decides(authz.Allow)
}
