package keelson_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// TestZeroConfigServes checks that a configuration with only a port serves from ./keelson-data, like `keelson
// serve`. A fork of that server needs another data directory.
func TestZeroConfigServes(t *testing.T) {
	t.Chdir(t.TempDir())
	var c config.Config
	c.Serving.Port = config.FreePort // the default may be in use
	c.Diagnostics.Log = slog.New(slog.DiscardHandler)
	s := start(t, c)
	defer stop(t, s)
	if _, err := clientset(t, s).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("keelson-data/store"); err != nil || !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Errorf("%s %v", s.URL(), err)
	}
	p, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if fork, err := p.Start(t.Context()); err == nil {
		stop(t, fork)
		t.Error("a fork without a data directory of its own has started")
	}
	dir := t.TempDir()
	fork, err := p.Start(t.Context(), func(c *config.Config) { c.Storage.DataDir = dir })
	if err != nil {
		t.Fatal(err)
	}
	stop(t, fork)
}

// TestErrorsNameFields checks that errors name the wrong fields, whether package config finds them or the server
// does.
func TestErrorsNameFields(t *testing.T) {
	for want, change := range map[string]func(*config.Config){
		"Storage.HistoryWindow must be greater than 0":              func(c *config.Config) { c.Storage.HistoryWindow = -time.Second },
		"Storage.Snapshots.Dir must not be empty":                   func(c *config.Config) { c.Storage.Snapshots.Interval = time.Hour },
		"Serving.TLS.MinVersion: unknown tls version":               func(c *config.Config) { c.Serving.TLS.MinVersion = "x" },
		"Controllers.Names: ":                                       func(c *config.Config) { c.Controllers.Names = []string{"x"} },
		"Authentication.ClientCAFile: cannot read x":                func(c *config.Config) { c.Authentication.ClientCAFile = "x" },
		`Admission.Enable: plug-in "x" is unknown`:                  func(c *config.Config) { c.Admission.Enable = []string{"x"} },
		"Requests.GoawayChance can not be less than 0":              func(c *config.Config) { c.Requests.GoawayChance = 1 },
		"Requests.HSTSDirectives invalid":                           func(c *config.Config) { c.Requests.HSTSDirectives = []string{"x"} },
		"empty value in Requests.HSTSDirectives":                    func(c *config.Config) { c.Requests.HSTSDirectives = []string{""} },
		"Requests.CORSAllowedOrigins has an invalid":                func(c *config.Config) { c.Requests.CORSAllowedOrigins = []string{"x"} },
		"cannot use the data directory /dev/null (Storage.DataDir)": func(c *config.Config) { c.Storage.DataDir = "/dev/null" },
		"API.RuntimeConfig: unknown api groups x":                   func(c *config.Config) { c.API.RuntimeConfig = []string{"x/v1=true"} },
		"API.RuntimeConfig: api/ga=false conflicts":                 func(c *config.Config) { c.API.RuntimeConfig = []string{"api/ga=false"} },
		"Storage.Etcd.Servers must be specified\nAuth":              func(c *config.Config) { *c = config.KubeAPIServer() },
	} {
		c := config.InMemory()
		c.Diagnostics.Log = slog.New(slog.DiscardHandler)
		change(&c)
		s, err := keelson.Start(t.Context(), c)
		if err == nil {
			stop(t, s)
		}
		var mistake *config.Error
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.As(err, &mistake) || strings.Contains(err.Error(), "--") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
