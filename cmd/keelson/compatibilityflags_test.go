package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagsOfKubeAPIServer compares the flags with those of kube-apiserver 1.36.
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
		err      string // a part of the error
		warnings int
	}{
		{args: []string{"--storage-backend=etcd3", "--watch-cache=true", "--emulated-version=kube=1.36"}},
		{args: []string{"--watch-cache=false", "--log-flush-frequency=1s"}, warnings: 2},
		{args: []string{"--apiserver-count=3", "--kubelet-read-only-port=0"}, warnings: 2},
		{args: []string{"--apiserver-count=0"}, err: "--apiserver-count should be a positive number, but value '0' provided", warnings: 1},
		{args: []string{"--storage-backend=etcd2"}, err: "allowed values: etcd3"},
		{args: []string{"--storage-media-type=application/json"}, err: "--storage-media-type must be"},
		{args: []string{"--emulated-version=1.35"}, err: "--emulated-version must be kube=1.36"},
		{args: []string{"--emulation-forward-compatible"}, err: "cannot be true"},
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
	for asked, want := range map[string]string{"--version": "keelson 0.", "--version=raw": `version.Info{Major:"1", Minor:"36"`} {
		var out strings.Builder
		c := newServe(&out, io.Discard, serveDefaults())
		c.SetArgs([]string{asked})
		if err := c.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q %v", asked, out.String(), err)
		}
	}
}
