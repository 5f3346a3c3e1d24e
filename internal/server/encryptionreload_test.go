package server

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestReloadedKeyReads checks that objects whose key is added by a reload of the configuration become readable,
// without a request for them and without a restart.
func TestReloadedKeyReads(t *testing.T) {
	const first, second = "{name: k1, secret: AAECAwQFBgcICQoLDA0ODw==}", "{name: k2, secret: Dw4NDAsKCQgHBgUEAwIBAA==}"
	config := testConfig(t)
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	config.Storage.EncryptionConfigFile, config.Storage.EncryptionReload = file, true
	config.fileReload = time.Hour // only Reload has the file read
	encryptionFile(t, file, "{aesgcm: {keys: ["+first+"]}}")
	s, err := Start(t.Context(), config.Config, config.Options)
	if err != nil {
		t.Fatal(err)
	}
	createSecret(t, httpClient(t, s, true), s.URL(), "one")
	stop(t, s)

	encryptionFile(t, file, "{aesgcm: {keys: ["+second+"]}}")
	s = start(t, config)
	secrets := s.api.registry.Resource(schema.GroupResource{Resource: "secrets"})
	if _, err := secrets.Current(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !secrets.Unreadable() {
		t.Fatal("read without a key")
	}
	encryptionFile(t, file, "{aesgcm: {keys: ["+second+", "+first+"]}}")
	s.Reload()
	for limit := time.Now().Add(30 * time.Second); secrets.Unreadable(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("30 s after the key was added, the object cannot be read")
		}
	}
}
