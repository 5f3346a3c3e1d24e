package webhook

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCredentialsFromKubeconfig looks up the users of a kubeconfig by address.
func TestCredentialsFromKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `users:
- {name: a.ns.svc, user: {token: exact}}
- {name: "b.ns.svc:8443", user: {token: port}}
- {name: "*.ns.svc", user: {token: namespace}}
- {name: "*.svc", user: {token: services}}
- {name: hook.example.com, user: {token: url}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	find, err := CredentialsFromKubeconfig(file, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"a.ns.svc:443": "exact", "a.ns.svc:8443": "namespace", "b.ns.svc:8443": "port", "b.ns.svc:443": "namespace",
		"c.other.svc:443": "services", "hook.example.com:443": "url", "hook.example.org:443": "",
	} {
		if got, err := find(address); err != nil || got.Token != want {
			t.Errorf("%s: %q %v, not %q", address, got.Token, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("users: [{name: a, user: {exec: {command: x}}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CredentialsFromKubeconfig(file, os.ReadFile); err == nil {
		t.Error("a user with a program is accepted")
	}
}
