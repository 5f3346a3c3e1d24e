package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/test/rig"
)

// ownSettings are the settings of a server that is a member of a cluster of its own kind.
type ownSettings struct {
	Dir, Name, Address string
	Port               int
	Tokens             string // file with the tokens of users
	Join, Token        string // "" for the first member
}

func beOwnMember(settings []byte, ready func()) error {
	var s ownSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	conf := config.Default()
	conf.Storage.Backend, conf.Storage.DataDir = config.StorageMembers, s.Dir
	conf.Storage.Members = config.Members{Init: s.Join == "", Join: s.Join, Token: s.Token, Name: s.Name, Address: s.Address}
	conf.Serving.Port, conf.Authentication.TokenFile, conf.Diagnostics.Log = s.Port, s.Tokens, quiet()
	conf.Controllers.Names = []string{"-*"} // they write ConfigMaps that no client has asked for
	server, err := keelson.Start(context.Background(), conf)
	if err != nil {
		return err
	}
	ready()
	return <-server.Failed()
}

// own is a cluster of servers that are its members.
type own struct {
	t        testing.TB
	client   *http.Client
	settings []ownSettings
	running  []*child
}

// startOwn starts n members, which accept chaosToken.
func startOwn(t testing.TB, n int) *own {
	t.Helper()
	transport := &http.Transport{
		//nolint:gosec // the server runs on this machine
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	o := &own{t: t, client: &http.Client{Transport: transport}}
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(chaosToken+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name, peer, api := fmt.Sprintf("m%d", i), freeURL(t), freeURL(t)
		port, err := strconv.Atoi(api.Port())
		if err != nil {
			t.Fatal(err)
		}
		s := ownSettings{Dir: filepath.Join(dir, name), Name: name, Address: peer.Host, Port: port, Tokens: tokens}
		if i > 0 {
			var made struct{ Token string }
			o.call(o.urls()[0], http.MethodPost, "/keelson/members/tokens", `{}`, &made)
			s.Join, s.Token = o.urls()[0], made.Token
		}
		o.settings, o.running = append(o.settings, s), append(o.running, nil)
		o.restart()
	}
	return o
}

func (o *own) urls() (list []string) {
	for _, s := range o.settings {
		list = append(list, "https://127.0.0.1:"+strconv.Itoa(s.Port))
	}
	return list
}

// restart starts all members that are not running.
func (o *own) restart() {
	o.t.Helper()
	up(o.t, "own member", o.settings, o.running)
}

// call sends a request, and decodes the answer.
func (o *own) call(base, method, path, body string, out any) {
	o.t.Helper()
	r, err := http.NewRequest(method, base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+chaosToken)
	r.Header.Set("Content-Type", "application/json")
	within(o.t, path, func() error {
		r.Body = io.NopCloser(bytes.NewReader([]byte(body)))
		resp, err := o.client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode >= http.StatusBadRequest {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(text, out)
	})
}

// settle waits until every write of members that were killed has taken effect or never will. It writes through each member, and what it
// writes takes effect after the earlier writes.
func (o *own) settle() {
	o.t.Helper()
	for _, base := range o.urls() {
		o.call(base, http.MethodPost, "/api/v1/namespaces/kube-system/secrets", `{"metadata":{"generateName":"settle-"}}`, &struct{}{})
	}
}

// past returns all changes that a member knows, as text.
func (o *own) past(base string) string {
	o.t.Helper()
	var text bytes.Buffer
	for from := ""; ; {
		var page struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		o.call(base, http.MethodGet, "/apis/history.keelson.dev/v1alpha1/changes?since=0&limit=500&continue="+url.QueryEscape(from), "", &page)
		for _, item := range page.Items {
			text.Write(item)
		}
		if from = page.Metadata.Continue; from == "" {
			return text.String()
		}
	}
}

// TestKillMembers kills one, two or all of three members at random moments, while clients write, read and watch on all of them. At the end
// of each round all are killed and started again. The whole history over all members is checked, and at the end, all of them tell the
// same past.
func TestKillMembers(t *testing.T) {
	o := startOwn(t, 3)
	s := rig.NewScenario(t, rig.Seeded(t), o.client)
	s.Token = chaosToken
	s.At(o.urls()[0], o.urls()...)
	s.Begin(true)
	killed := map[int]int{}
	for s.Round = range rig.Rounds(6, 100) {
		ctx, cancel := context.WithCancel(t.Context())
		rng := rand.New(rand.NewPCG(s.Rng.Uint64(), 4))
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			s.Load(ctx, 6, 3)
		}()
		pause := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
		pause(300 * time.Millisecond)
		n := 1 + rng.IntN(3)
		killed[n]++
		for _, i := range rng.Perm(3)[:n] {
			kill(o.running, i)
		}
		if rng.IntN(2) == 0 {
			o.restart()
		}
		pause(3 * time.Second) // enough for an election
		cancel()
		<-loaded
		kill(o.running, 0, 1, 2)
		o.restart()
		o.settle()
		s.Rec.Settle()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", s.Round, err)
		}
	}
	s.Round++
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	first := o.past(o.urls()[0])
	for _, base := range o.urls()[1:] {
		within(t, "the same past", func() error {
			if other := o.past(base); other != first {
				first = o.past(o.urls()[0])
				return fmt.Errorf("%d and %d bytes differ", len(first), len(other))
			}
			return nil
		})
	}
	if strings.Count(first, `"kind":"Change"`) < 100 {
		t.Errorf("these are not all changes: %.500s", first)
	}
	t.Logf("rounds by the number of members that were killed: %v; %d bytes of changes", killed, len(first))
}
