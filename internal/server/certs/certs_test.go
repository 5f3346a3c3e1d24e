package certs

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	now := time.Now()
	o := Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Serving: true, Admin: true,
		Names: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
		Now: func() time.Time { return now },
	}
	ensure := func() *Set {
		t.Helper()
		s, err := Ensure(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := ensure()
	if again := ensure(); string(again.Serving.Cert) != string(first.Serving.Cert) ||
		string(again.Admin.Cert) != string(first.Admin.Cert) {
		t.Error("a second start makes other certificates")
	}
	o.Names = append(o.Names, "kubernetes")
	second := ensure()
	if string(second.Serving.Cert) == string(first.Serving.Cert) ||
		string(second.Admin.Cert) != string(first.Admin.Cert) || string(second.CA) != string(first.CA) {
		t.Error("another name must make another serving certificate, and nothing else")
	}
	now = now.Add(leafLifetime - renewBefore + time.Hour)
	third := ensure()
	if string(third.Serving.Cert) == string(second.Serving.Cert) ||
		string(third.Admin.Cert) == string(second.Admin.Cert) || string(third.CA) != string(first.CA) {
		t.Error("leaves must be renewed before their end, the authority kept")
	}
	for _, name := range []string{"ca.key", "apiserver.key", "admin.key"} {
		info, err := os.Stat(filepath.Join(o.Dir, name))
		if err != nil || info.Mode().Perm() != privateFile {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "admin.crt"), []byte("nonsense"), publicFile); err != nil {
		t.Fatal(err)
	}
	if _, err := ensure().Admin.TLS(); err != nil {
		t.Errorf("a damaged certificate is not replaced: %v", err)
	}
}

func TestAdministratorIsOfSystemMasters(t *testing.T) {
	s, err := Ensure(Options{Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(s.Admin.Cert, s.Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	if groups := pair.Leaf.Subject.Organization; len(groups) != 1 || groups[0] != AdminGroup {
		t.Errorf("groups: %q", groups)
	}
}

func TestCertificatesInMemoryKeepTheAuthority(t *testing.T) {
	now := time.Now()
	o := Options{Memory: map[string]Pair{}, Serving: true, Admin: true, Now: func() time.Time { return now }}
	first, err := Ensure(o)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(leafLifetime - renewBefore + time.Hour)
	second, err := Ensure(o)
	if err != nil || string(second.CA) != string(first.CA) || string(second.Serving.Cert) == string(first.Serving.Cert) {
		t.Errorf("renewed in memory: the same authority %v, another certificate %v, %v",
			string(second.CA) == string(first.CA), string(second.Serving.Cert) != string(first.Serving.Cert), err)
	}
}

func TestNothingIsMadeThatNobodyNeeds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	s, err := Ensure(Options{Dir: dir})
	if err != nil || s.CA != nil || s.Admin.Cert != nil || s.Serving.Cert != nil {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}

// TestDamagedAuthority checks that the error for an unusable authority says what to do, and that Ensure succeeds
// after that was done.
func TestDamagedAuthority(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"certificate": func(dir string) error { return os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("x"), 0o600) },
		"no key":      func(dir string) error { return os.Remove(filepath.Join(dir, "ca.key")) },
	} {
		o := Options{Dir: t.TempDir(), Serving: true}
		for range 2 {
			if set, err := Ensure(o); err != nil || set.NewAuthority {
				t.Fatal(set, err)
			}
		}
		if err := damage(o.Dir); err != nil {
			t.Fatal(err)
		}
		_, err := Ensure(o)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(o.Dir, "ca.crt")+" and ca.key cannot be used") ||
			!strings.Contains(err.Error(), "restore both from a backup, or delete both") {
			t.Errorf("%s: %v", name, err)
		}
		for _, file := range []string{"ca.crt", "ca.key"} {
			if err := os.Remove(filepath.Join(o.Dir, file)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		if set, err := Ensure(o); err != nil {
			t.Errorf("%s: after both files were deleted: %v", name, err)
		} else if !set.NewAuthority {
			t.Errorf("%s: it is not said that the authority is a new one", name)
		}
	}
}

// TestKubeconfigQuotes checks that no text in a kubeconfig can add a line to it.
func TestKubeconfigQuotes(t *testing.T) {
	const odd = "x\n    insecure-skip-tls-verify: true\n    z: y"
	for _, text := range []string{odd, "yes", "1e3", "{x}", "a: b #c", "null"} {
		k := Kubeconfig{Server: "https://" + text, Remote: "https://r/" + text, ServerName: text, User: text, Token: text}
		var got struct {
			Clusters []struct {
				Cluster map[string]string `json:"cluster"`
			} `json:"clusters"`
			Users []struct {
				Name string            `json:"name"`
				User map[string]string `json:"user"`
			} `json:"users"`
		}
		if err := yaml.Unmarshal(k.Bytes(), &got); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		first, user := got.Clusters[0].Cluster, got.Users[0]
		if len(first) != 3 || first["tls-server-name"] != text || first["server"] != k.Server ||
			got.Clusters[1].Cluster["server"] != k.Remote || user.Name != text || user.User["token"] != text {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
