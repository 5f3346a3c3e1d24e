package encrypt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidation(t *testing.T) {
	good := keys("aesgcm", "a", secretOf(32))
	kms := func(members string) string { return "kms: {" + members + "}" }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "is empty"},
		{"not YAML", "{", "error decoding"},
		{"another kind", "apiVersion: v1\nkind: Secret\n", "want kind EncryptionConfiguration"},
		{"unknown field", document(entry("secrets", "rot13: {}")), `unknown field "rot13"`},
		{
			"nothing", "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n",
			"resources: Required value: at least one resources is required",
		},
		{"no resources", document(entry("", good)), "resources[0].resources: Required value"},
		{"no provider", document(entry("secrets", "{}")), "does not contain any of the expected providers"},
		{
			"two in one", document(entry("secrets", "{identity: {}, "+good+"}")),
			"more than one provider specified in a single element",
		},
		{"no keys", document(entry("secrets", "aescbc: {keys: []}")), "at least one keys is required"},
		{"no name", document(entry("secrets", keys("aescbc", "''", secretOf(32)))), "name is a mandatory field for a key"},
		{"colon", document(entry("secrets", keys("aescbc", "'a:b'", secretOf(32)))), "must not contain ':'"},
		{"no secret", document(entry("secrets", keys("aescbc", "a", "''"))), "secret is a mandatory field for a key"},
		{"no base64", document(entry("secrets", keys("aescbc", "a", "'*'"))), "secrets must be base64 encoded"},
		{"short", document(entry("secrets", keys("aesgcm", "a", secretOf(15)))), "got 15, expected one of [16 24 32]"},
		{"short box", document(entry("secrets", keys("secretbox", "a", secretOf(16)))), "got 16, expected one of [32]"},
		{"capitals", document(entry("Secrets", good)), "should not contain capital letters"},
		{"star", document(entry("'*'", good)), "use '*.' to encrypt all the resources from core API group"},
		{
			"across groups", document(entry("'secrets.*'", good)), "encrypting the same resource across groups is not supported",
		},
		{"events", document(entry("events.events.k8s.io", good)), "Use 'events' instead"},
		{"extensions", document(entry("'*.extensions'", good)), "'extensions' group has been removed"},
		{"not REST", document(entry("serviceipallocations", good)), "do not have REST API/s"},
		{"twice", document(entry("secrets, secrets", good)), "cannot be specified multiple times"},
		{"overlap", document(entry("secrets, '*.'", good)), "using overlapping resources"},
		{"overlap of all", document(entry("'*.apps', '*.*'", good)), "using overlapping resources"},
		{
			"masked", document(entry("'*.'", good), entry("secrets", good)), `resource "secrets" is masked by earlier rule "*."`,
		},
		{
			"masked by all", document(entry("'*.*'", good), entry("'*.apps'", good)),
			`resource "*.apps" is masked by earlier rule "*.*"`,
		},
		{
			"KMS v1", document(entry("secrets", kms("name: a, endpoint: 'unix:///s'"))), "KMSv1 is deprecated and not supported",
		},
		{
			"KMS v3", document(entry("secrets", kms("apiVersion: v3, name: a, endpoint: 'unix:///s'"))),
			"unsupported apiVersion v3",
		},
		{"KMS name", document(entry("secrets", kms("apiVersion: v2, endpoint: 'unix:///s'"))), "name is a mandatory field"},
		{
			"KMS colon", document(entry("secrets", kms("apiVersion: v2, name: 'a:b', endpoint: 'unix:///s'"))),
			"invalid KMS provider name a:b",
		},
		{
			"KMS twice",
			document(entry(
				"secrets", kms("apiVersion: v2, name: a, endpoint: 'unix:///s'"),
				kms("apiVersion: v2, name: a, endpoint: 'unix:///s'"),
			)),
			"duplicate KMS provider name a",
		},
		{"KMS endpoint", document(entry("secrets", kms("apiVersion: v2, name: a"))), "endpoint is a mandatory field"},
		{
			"KMS scheme", document(entry("secrets", kms("apiVersion: v2, name: a, endpoint: 'tcp://localhost'"))),
			`unsupported scheme "tcp"`,
		},
		{
			"KMS timeout", document(entry("secrets", kms("apiVersion: v2, name: a, endpoint: 'unix:///s', timeout: 0s"))),
			"timeout should be a positive value",
		},
		{
			"KMS cache", document(entry("secrets", kms("apiVersion: v2, name: a, endpoint: 'unix:///s', cachesize: 10"))),
			"cachesize is not supported in v2",
		},
	} {
		name := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Options{File: name})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), secretOf(32)) {
			t.Errorf("%s: the error tells the secret", c.name)
		}
	}
	if _, err := Open(Options{File: filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("a missing file is no error")
	}
}
