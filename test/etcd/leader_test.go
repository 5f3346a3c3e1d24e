package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLeaderIsKilled kills the server that leads, in several rounds, and says how long it takes until another one leads.
// docs/controllers.md says how long that may be.
func TestLeaderIsKilled(t *testing.T) {
	p := startProcesses(t, 3, 3, "secret")
	client := &http.Client{
		Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	rounds := 2
	if long() {
		rounds = 20
	}
	for range rounds {
		killed := awaitLeader(t, client, p, -1)
		began := time.Now()
		kill(p.running.replicas, killed)
		other := awaitLeader(t, client, p, killed)
		t.Logf("server %d leads %v after server %d was killed", other, time.Since(began).Round(time.Millisecond), killed)
		p.restart()
	}
}

// awaitLeader waits until a server leads, other than one that was killed, and checks that no other one leads.
func awaitLeader(t *testing.T, client *http.Client, p *processes, killed int) int {
	t.Helper()
	leader := -1
	within(t, "a leader", func() error {
		leader = -1
		for i, url := range p.urls() {
			switch leads, err := leadsServer(client, url); {
			case i == killed:
			case err != nil:
				return err
			case leads && leader >= 0:
				t.Fatalf("servers %d and %d lead", leader, i)
			case leads:
				leader = i
			}
		}
		if leader < 0 {
			return errors.New("no server leads")
		}
		return nil
	})
	return leader
}

// leadsServer asks a server whether it leads.
func leadsServer(client *http.Client, url string) (bool, error) {
	r, err := client.Get(url + "/readyz?verbose")
	if err != nil {
		return false, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if text := string(b); err == nil && !strings.Contains(text, "\nleader: ") {
		err = fmt.Errorf("%s says nothing of a leader: %s", url, text)
	}
	return strings.Contains(string(b), "\nleader: this server does "), err
}
