package server

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestReloadedKeyReads checks that objects whose key is added by a reload of the configuration become readable,
// without a request for them and without a restart.
func TestReloadedKeyReads(t *testing.T) {
	const first, second = "{name: k1, secret: AAECAwQFBgcICQoLDA0ODw==}", "{name: k2, secret: Dw4NDAsKCQgHBgUEAwIBAA==}"
	config := testConfig(t)
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	config.Storage.EncryptionConfigFile, config.Storage.EncryptionReload = file, true
	config.fileReload = time.Hour // only Reload makes the server read the file
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
	if _, err := secrets.Reader.Current(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !secrets.Reader.Unreadable() {
		t.Fatal("read without a key")
	}
	encryptionFile(t, file, "{aesgcm: {keys: ["+second+", "+first+"]}}")
	s.Reload()
	wait.Until(t, "the object to be readable with the added key", func() bool { return !secrets.Reader.Unreadable() })
}

// TestDroppedKeyOfThePast checks that the server reports a reload that removes a key which only old versions of an
// object need.
func TestDroppedKeyOfThePast(t *testing.T) {
	const first, second = "{name: k1, secret: AAECAwQFBgcICQoLDA0ODw==}", "{name: k2, secret: Dw4NDAsKCQgHBgUEAwIBAA==}"
	config := testConfig(t)
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	config.Storage.EncryptionConfigFile, config.Storage.EncryptionReload = file, true
	config.fileReload = time.Hour // only Reload makes the server read the file
	log := &apitest.Log{}
	config.Diagnostics.Log = slog.New(slog.NewTextHandler(log, nil))
	encryptionFile(t, file, "{aesgcm: {keys: ["+first+"]}}")
	s := start(t, config)
	c := httpClient(t, s, true)
	createSecret(t, c, s.URL(), "one")
	said := func(text string) func() (bool, string) {
		return func() (bool, string) { return strings.Contains(log.String(), text), log.String() }
	}
	// The current object needs the first key.
	encryptionFile(t, file, "{aesgcm: {keys: ["+second+", "+first+"]}}")
	s.Reload()
	wait.Seen(t, "the second key is in use", said("a changed file is in effect"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, s.URL()+"/api/v1/namespaces/default/secrets/one",
		strings.NewReader(`{"metadata":{"labels":{"a":"b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	w, err := c.Do(r)
	if err != nil || w.StatusCode != http.StatusOK {
		t.Fatal(w, err)
	}
	w.Body.Close()
	if strings.Contains(log.String(), "kept versions") {
		t.Error("no key was dropped: " + log.String())
	}
	encryptionFile(t, file, "{aesgcm: {keys: ["+second+"]}}")
	s.Reload()
	wait.Seen(t, "a line about the key that the past needs",
		said(`resource=secrets keys=aesgcm:v1:k1 versions=1 `))
}
