package kubectlhistory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRemote(t *testing.T) {
	path := writeFile(t, "config", testKubeconfig, 0o600)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Connect(t.Context(), path, "", os.Getenv)
	if err != nil || r.URL != "https://one:6443/prefix" || r.Header.Get("Authorization") != "Bearer secret" ||
		r.Transport.TLSClientConfig == nil || r.Transport.Proxy == nil {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Connect(t.Context(), path, "c", os.Getenv); err == nil {
		t.Error("a context without a cluster is accepted")
	}
}
