package server

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/encrypt/kmstest"
)

// encryptionFile writes an encryption configuration for secrets. The string providers is a list of YAML in flow
// style.
func encryptionFile(t *testing.T, name, providers string) {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: " +
		"[secrets]\n  providers: [" + providers + "]\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func createSecret(t *testing.T, c *http.Client, url, name string) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q},"stringData":{"password":"hunter2"}}`, name)
	w, err := c.Post(url+"/api/v1/namespaces/default/secrets", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	if w.StatusCode != http.StatusCreated {
		t.Fatalf("create of %s: %d", name, w.StatusCode)
	}
}

// TestEncryption starts a server with a KMS provider, and then without its key. Reading an encrypted object is
// then an error, and everything else is served.
func TestEncryption(t *testing.T) {
	socket, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(socket)
	socket = filepath.Join(socket, "s")
	plugin, err := kmstest.Start(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Stop()

	config := testConfig(t)
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	config.Storage.EncryptionConfigFile = file
	encryptionFile(t, file, "{kms: {apiVersion: v2, name: vault, endpoint: 'unix://"+socket+"', timeout: 1s}}")
	s, err := Start(t.Context(), config.Config, config.Options)
	if err != nil {
		t.Fatal(err)
	}
	c := httpClient(t, s, true)
	createSecret(t, c, s.URL(), "one")
	if a := apitest.Send(t, c, "GET", s.URL()+"/healthz/kms-providers", ""); a.Status != 200 {
		t.Errorf("health: %d %s", a.Status, a.Body)
	}
	e, _, err := s.stores.Main.Get(t.Context(), "/registry/secrets/default/one", 0)
	if err != nil || !strings.HasPrefix(string(e.Value), "k8s:enc:kms:v2:vault:") {
		t.Errorf("stored as %.30q, error %v", e.Value, err)
	}
	stop(t, s)

	encryptionFile(t, file, "{aesgcm: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODw==}]}}")
	s = start(t, config)
	c = httpClient(t, s, true)
	secrets := s.URL() + "/api/v1/namespaces/default/secrets"
	createSecret(t, c, s.URL(), "two")
	const (
		corrupt = `StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: data from the ` +
			`storage is not transformable revision=0: no matching prefix found`
		prefix = "/registry"
		key    = "/secrets/default/one"
	)
	refused := "Internal error occurred: " + fmt.Sprintf(corrupt, key)
	notListed := "failed to read one or more secrets from the storage: " + fmt.Sprintf(corrupt, prefix+key)
	for _, step := range []struct {
		method, url, accept string
		status              int
		message             string
	}{
		{"GET", secrets + "/one", "", 500, refused},
		{"GET", secrets + "/one", "application/vnd.kubernetes.protobuf", 500, ""},
		{"DELETE", secrets + "/one", "", 500, refused},
		{"GET", secrets + "/two", "", 200, ""},
		{"GET", secrets, "", 500, notListed},
		{"GET", secrets + "?fieldSelector=type%3DOpaque", "", 500, notListed},
		{"GET", secrets + "?labelSelector=a%3Db", "", 500, notListed},
		{"GET", secrets, "application/json;as=Table;v=v1;g=meta.k8s.io", 500, notListed},
		{"GET", s.URL() + "/api/v1/namespaces/kube-system/secrets", "", 200, ""},
		{"GET", s.URL() + "/api/v1/namespaces/default/configmaps", "", 200, ""},
		{"GET", s.URL() + "/healthz/kms-providers", "", 404, ""},
	} {
		a := apitest.Send(t, c, step.method, step.url, "", "Accept", step.accept)
		if a.Status != step.status || step.message != "" && a.Message() != step.message {
			t.Errorf("%s %s: %d %s", step.method, step.url, a.Status, a.Body)
		}
	}
	w, err := c.Get(secrets + "?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	line, err := bufio.NewReader(w.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"type":"ERROR"`) || !strings.Contains(line, "unable to transform key") {
		t.Errorf("watch: %q, error %v", line, err)
	}
}

func TestEncryptionConfigIsChecked(t *testing.T) {
	conf := testConfig(t)
	conf.Storage.EncryptionConfigFile = filepath.Join(t.TempDir(), "encryption.yaml")
	encryptionFile(t, conf.Storage.EncryptionConfigFile, "{aesgcm: {keys: [{name: k, secret: AAEC}]}}")
	if _, err := Start(t.Context(), conf.Config, conf.Options); err == nil ||
		!strings.Contains(config.CommandLine(err), "secret is not of the expected length") {
		t.Errorf("error %v", err)
	}
	conf.Storage.EncryptionConfigFile, conf.Storage.EncryptionReload = "", true
	if _, err := Start(t.Context(), conf.Config, conf.Options); err == nil ||
		!strings.Contains(config.CommandLine(err), "must be set with --encryption-provider-conf") {
		t.Errorf("error %v", err)
	}
}
