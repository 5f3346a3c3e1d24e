package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// TestFlagsOfKubeAPIServer compares the flags with those of kube-apiserver 1.37.
func TestFlagsOfKubeAPIServer(t *testing.T) {
	serve := newServe(io.Discard, io.Discard, serveDefaults())
	serve.InitDefaultHelpFlag()
	var missing []string
	for _, f := range referenceFlags(t) {
		if serve.Flags().Lookup(f.name) == nil {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("missing are %q", missing)
	}
}

func TestCompatibilityFlags(t *testing.T) {
	for _, test := range []struct {
		args     []string
		err      string // the error must contain this
		warnings int
	}{
		{args: []string{"--storage-backend=etcd3", "--watch-cache=true"}},
		{args: []string{"--watch-cache=false", "--log-flush-frequency=1s"}, warnings: 2},
		{args: []string{"--apiserver-count=3", "--kubelet-read-only-port=0", "--default-watch-cache-size=0"}, warnings: 3},
		{args: []string{"--apiserver-count=0"}, err: "--apiserver-count should be a positive number, but value '0' provided", warnings: 1},
		{args: []string{"--storage-backend=etcd2"}, err: "allowed values: etcd3"},
		{args: []string{"--storage-media-type=application/json"}, err: "--storage-media-type must be"},
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		var c compatibilityFlags
		c.add(f)
		if err := f.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		err := c.validate()
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%q: %v, want %q", test.args, err, test.err)
		}
		if got := withoutEffect(f); len(got) != test.warnings {
			t.Errorf("%q: warnings %q, want %d", test.args, got, test.warnings)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	asKubeAPIServer := personality{config: config.KubeAPIServer(), kubeAPIServer: true}
	for _, test := range []struct {
		as          personality
		asked, want string
	}{
		{serveDefaults(), "--version", "keelson "},
		{serveDefaults(), "--version=raw", `version.Info{Major:"1", Minor:"37"`},
		{asKubeAPIServer, "--version", "Kubernetes v1.37."},
	} {
		var out strings.Builder
		c := newServe(&out, io.Discard, test.as)
		c.SetArgs([]string{test.asked})
		if err := c.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), test.want) {
			t.Errorf("%s: %q %v", test.asked, out.String(), err)
		}
	}
}
