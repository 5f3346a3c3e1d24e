package main

import (
	"maps"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

func TestAuthenticationFlags(t *testing.T) {
	parse := func(args ...string) (config.Authentication, error) {
		c := config.Default()
		f := pflag.NewFlagSet("keelson", pflag.ContinueOnError)
		configFlags(f, &c)
		err := f.Parse(args)
		return c.Authentication, err
	}
	c, err := parse()
	if err != nil || c.NoAnonymous || len(c.ServiceAccounts.Issuers) != 1 {
		t.Errorf("without flags: %+v %v", c, err)
	}
	c, err = parse("--anonymous-auth=false", "--service-account-issuer=https://a,b", "--service-account-issuer=https://c",
		"--oidc-required-claim=a=1,2", "--oidc-required-claim=b=x=y")
	if err != nil || !c.NoAnonymous || !maps.Equal(
		c.OIDC.RequiredClaims, map[string]string{"a": "1,2", "b": "x=y"},
	) {
		t.Errorf("%+v %v", c, err)
	}
	if got := c.ServiceAccounts.Issuers; len(got) != 2 || got[0] != "https://a,b" || got[1] != "https://c" {
		t.Errorf("issuers %q", got)
	}
	if _, err := parse("--oidc-required-claim=a"); err == nil {
		t.Error("a claim without a value")
	}
}

func TestBytesFlag(t *testing.T) {
	for text, want := range map[string]config.Bytes{"512Mi": 512 << 20, "1.5Gi": 3 << 29, "2G": 2e9, "1048576": 1 << 20} {
		var got config.Bytes
		if err := (&bytesValue{&got}).Set(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "much", "1 GB", "5x"} {
		var got config.Bytes
		if err := (&bytesValue{&got}).Set(text); err == nil {
			t.Errorf("%q is accepted as %d", text, got)
		}
	}
}
