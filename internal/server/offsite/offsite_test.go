package offsite_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// withCopy is the configuration of a server with a data directory and a copy.
func withCopy(t *testing.T, to string) servertest.Config {
	c := servertest.Default()
	c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, t.TempDir()
	c.Storage.Backup.To, c.Storage.Backup.Interval = to, 100*time.Millisecond
	return c
}

// remark returns the lines of /readyz?verbose about the copy.
func remark(s *servertest.Server) string {
	var lines []string
	for line := range strings.Lines(s.Get("/readyz?verbose")) {
		if strings.Contains(line, "copy of the data") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestCopyHasAllChanges checks that a server that has stopped has copied everything, and that one that is started again goes on there.
func TestCopyHasAllChanges(t *testing.T) {
	for _, mode := range []string{config.BackupAsync, config.BackupSync} {
		to := t.TempDir()
		c := withCopy(t, to)
		c.Storage.Backup.Mode = mode
		for i := range 2 {
			s, err := server.Start(t.Context(), c.Config, c.Options)
			if err != nil {
				t.Fatal(err)
			}
			servertest.Stop(t, s)
			running := servertest.Start(t, c)
			running.Create("/api/v1/namespaces/default/configmaps", apitest.ConfigMap(fmt.Sprint("c", i)))
			if mode == config.BackupAsync {
				wait.Seen(t, "the copy", func() (bool, string) {
					text := remark(running)
					return strings.Contains(text, "is 0.0 seconds, 0 revisions and 0 bytes behind"), text
				})
			}
			servertest.Stop(t, running)
		}
		b, closeBucket, err := bucket.Open(t.Context(), to, bucket.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer closeBucket()
		x, err := copies.ReadIndex(t.Context(), b)
		if err != nil || len(x.Lines()) != 1 || len(x.Lines()[0].Images) != 1 {
			t.Fatalf("%s: %v, %+v", mode, err, x)
		}
		p, err := x.Plan(copies.Target{})
		if err != nil {
			t.Fatal(err)
		}
		o := embedded.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
		if _, err := p.Restore(t.Context(), b, o, t.TempDir(), nil); err != nil {
			t.Fatal(err)
		}
		if got, want := content(t, o.Dir), content(t, filepath.Join(c.Storage.DataDir, "store")); got != want {
			t.Errorf("%s: the copy has\n%s\nthe store\n%s", mode, got, want)
		}
	}
}

// content returns the keys of a store with their revisions and values.
func content(t *testing.T, dir string) string {
	t.Helper()
	r, err := embedded.OpenReader(embedded.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	e, err := r.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out strings.Builder
	for record, err := range e.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %d %d %x\n", record.Key, record.CreateRevision, record.ModRevision, record.Value)
	}
	return out.String()
}

// hanging is an S3 service that does not answer.
func hanging(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "key")
	return s.URL
}

// TestPlaceThatHangs checks that requests do not wait for it, that the server says how late the copy is, and that it stops.
func TestPlaceThatHangs(t *testing.T) {
	c := withCopy(t, "s3://bucket/prefix")
	c.Storage.Backup.S3.Endpoint = hanging(t)
	var log apitest.Log
	c.Diagnostics.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := servertest.Start(t, c)
	for i := range 50 {
		s.Create("/api/v1/namespaces/default/configmaps", apitest.ConfigMap(fmt.Sprint("c", i)))
	}
	if text := remark(s); strings.Contains(text, " 0 revisions") || !strings.Contains(text, "the copy of the data is ") {
		t.Error(text)
	}
	metrics := s.Get("/metrics")
	for _, name := range []string{"keelson_backup_behind_seconds ", "keelson_backup_behind_revisions ", "keelson_backup_behind_bytes "} {
		if _, value, found := strings.Cut(metrics, "\n"+name); !found || strings.HasPrefix(value, "0\n") {
			t.Errorf("%s%.10s", name, value)
		}
	}
	servertest.Stop(t, s)
	if text := log.String(); !strings.Contains(text, "the copy of the data does not have the last changes") {
		t.Error(text)
	}
}

// TestExclusiveCopy checks that a second server does not start beside the first one, and that nothing is answered without the lock.
func TestExclusiveCopy(t *testing.T) {
	to := t.TempDir()
	c := withCopy(t, to)
	c.Storage.Backup.Exclusive, c.Storage.Backup.LockDuration = true, 2*time.Second
	s := servertest.Start(t, c)
	s.Create("/api/v1/namespaces/default/configmaps", apitest.ConfigMap("c"))
	other := withCopy(t, to)
	other.Storage.Backup = c.Storage.Backup
	second, err := server.Start(t.Context(), other.Config, other.Options)
	if err == nil {
		servertest.Stop(t, second)
	}
	if err == nil || !strings.Contains(err.Error(), "the copy is written by") {
		t.Errorf("a second server: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(to, "lock.versions")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "lock.versions"), nil, 0o600); err != nil { // the lock cannot be renewed
		t.Fatal(err)
	}
	wait.Until(t, "the end of the lock", func() bool {
		return s.Send("GET", "/api/v1/namespaces/default/configmaps/c", "").Status == http.StatusServiceUnavailable
	})
	for path, want := range map[string]int{"/readyz": http.StatusInternalServerError, "/livez": http.StatusOK} {
		if a := s.Send("GET", path, ""); a.Status != want {
			t.Errorf("%s without the lock: %d", path, a.Status)
		}
	}
}

func TestRecipients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recipients")
	const secret = "AGE-SECRET-KEY-1QQPQZ6JLAHKGP0CRAGS35LGDF4SXHTSK9WWKPV20SNDVVSGMP7DQCYZUH0"
	for content, want := range map[string]string{
		"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n": "",
		secret:   "must have public keys of age",
		"":       "must have public keys of age",
		"# only": "must have public keys of age",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := offsite.ReadRecipients(path)
		switch {
		case (err == nil) != (want == ""):
			t.Errorf("%q: %v", content, err)
		case err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%q: %v", content, err)
		}
	}
}
