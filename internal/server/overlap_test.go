package server

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// reissued writes another certificate with the key and the name of a, and returns its file.
func (a *authority) reissued() string {
	a.t.Helper()
	template := *a.cert
	template.SerialNumber, template.NotAfter = big.NewInt(7), time.Now().Add(3*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &a.key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	file := filepath.Join(a.t.TempDir(), "reissued.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// lines is a writer that sends each written line to a channel. It drops lines for which the channel has no room.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

// TestReissuedAuthorityOverlaps checks that an authority of clients is not accepted as an authority of front
// proxies. It is recognized by its key if it has another certificate, both at the start and after a reload.
func TestReissuedAuthorityOverlaps(t *testing.T) {
	clients, proxies := newAuthority(t), newAuthority(t)
	conf := testConfig(t)
	conf.Authentication.ClientCAFile, conf.fileReload = clients.file, time.Millisecond
	headers := config.RequestHeader{
		ClientCAFile: clients.reissued(), UsernameHeaders: []string{"X-Remote-User"},
		GroupHeaders: []string{"X-Remote-Group"},
	}
	conf.Authentication.RequestHeader = headers
	if s, err := Start(context.Background(), conf.Config, conf.Options); err == nil {
		stop(t, s)
		t.Error("the server starts with a reissued certificate of the same authority")
	}

	log := make(lines, 1000)
	conf.Diagnostics.Log = slog.New(slog.NewTextHandler(log, nil))
	conf.Authentication.RequestHeader.ClientCAFile = proxies.file
	s := start(t, conf)
	reissued, err := os.ReadFile(headers.ClientCAFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(proxies.file, reissued, 0o600); err != nil {
		t.Fatal(err)
	}
	spoof := []string{"X-Remote-User", "eve", "X-Remote-Group", "system:masters"}
	const deadline = 20 * time.Second
	timer := time.After(deadline)
	for refused := false; !refused; {
		select {
		case line := <-log:
			refused = strings.Contains(line, "a changed file cannot be used") && strings.Contains(line, "overlap")
		case <-timer:
			t.Fatalf("the log does not say within %v that the file is refused", deadline)
		}
	}
	if a := apitest.Send(
		t, with(t, s, clients.issue("jane")), "GET", s.URL()+"/api/v1/secrets", "", spoof...,
	); a.Status != http.StatusForbidden {
		t.Errorf("a client's headers are believed: %d %s", a.Status, a.Body)
	}
	if a := apitest.Send(
		t, with(t, s, proxies.issue("proxy")), "GET", s.URL()+"/api/v1/secrets", "", spoof...,
	); a.Status != http.StatusOK {
		t.Errorf("the proxy before is not believed any more: %d %s", a.Status, a.Body)
	}
}
