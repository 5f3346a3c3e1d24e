package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSharedEncryption lets both servers encrypt Secrets with the same keys on one etcd, below a prefix that is not
// the default: each reads the Secrets of the other, with every kind of provider, and the stored values are encrypted.
func TestSharedEncryption(t *testing.T) {
	const key16, key32 = "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	for _, provider := range []struct{ name, key string }{{"aescbc", key32}, {"aesgcm", key16}, {"secretbox", key32}} {
		t.Run(provider.name, func(t *testing.T) {
			dir := logDir(t)
			file := filepath.Join(dir, "encryption.yaml")
			config := fmt.Sprintf(
				"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  "+
					"providers: [{%s: {keys: [{name: k1, secret: %s}]}}]\n",
				provider.name, provider.key,
			)
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			etcd := startEtcd(t, dir)
			flags := []string{"--etcd-prefix", "/tenants/one", "--encryption-provider-config", file}
			reference := kubeAPIServer(t, dir, etcd, flags...)
			keelson := keelsonOn(t, dir, append([]string{"--etcd-servers", etcd.url}, flags...)...)
			for _, by := range []*apiServer{reference, keelson} {
				const secrets = "/api/v1/namespaces/kube-system/secrets"
				body := fmt.Appendf(
					nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q},"stringData":{"password":"hunter2"}}`, by.name,
				)
				if status, answer := by.must(t, http.MethodPost, secrets, jsonType, jsonType, body); status != http.StatusCreated {
					t.Fatalf("%s: %d %s", by.name, status, answer)
				}
				s := &shared{t: t, etcd: etcd, reference: reference, keelson: keelson}
				if err := s.same(t.Context(), secrets+"/"+by.name, jsonType); err != nil {
					t.Error(err)
				}
				if err := s.sameList(t.Context(), secrets, protoType); err != nil {
					t.Error(err)
				}
				if _, answer := keelson.must(
					t, http.MethodGet, secrets+"/"+by.name, jsonType, "", nil,
				); !strings.Contains(string(answer), "aHVudGVyMg==") {
					t.Errorf("%s", answer)
				}
				value, err := etcd.get(t.Context(), "/tenants/one/secrets/kube-system/"+by.name)
				if want := "k8s:enc:" + provider.name + ":v1:k1:"; err != nil || !strings.HasPrefix(string(value), want) {
					t.Errorf("%s stored %.30q, %v, want %s", by.name, value, err, want)
				}
			}
		})
	}
}
