package server

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const slowTokens = testTokens + `evetoken,eve,u-eve
nodetoken,system:node:n,u-n,"system:nodes"
`

// withholding opens n connections. The request of each announces a body that it does not send. withholding returns
// when the server waits for all n bodies.
func withholding(t *testing.T, s *Server, n int, token string) []*tls.Conn {
	t.Helper()
	var out []*tls.Conn
	for range n {
		conn := dial(t, s, "http/1.1")
		_, err := fmt.Fprintf(conn,
			"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
				"Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", token)
		if err != nil {
			t.Fatal(err)
		}
		// The server sends "100 Continue" when the handler reads the body.
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q %v", line, err)
		}
		out = append(out, conn)
	}
	return out
}

func slowConfig(t *testing.T) settings {
	t.Helper()
	c := testConfig(t)
	if err := os.WriteFile(c.Authentication.TokenFile, []byte(slowTokens), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Storage.Backend, c.Storage.DataDir = config.StorageMemory, ""
	return c
}

const selfReview = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
	`"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`

// withAndWithoutFairness runs a test with API priority and fairness and without it, with 8 seats for each kind of
// requests. With it users like dave have two of the 16 seats.
func withAndWithoutFairness(t *testing.T, run func(t *testing.T, c settings)) {
	t.Helper()
	for name, on := range map[string]bool{"fairness": true, "limits": false} {
		t.Run(name, func(t *testing.T) {
			c := slowConfig(t)
			c.Requests.NoPriorityAndFairness, c.Requests.MaxInFlight, c.Requests.MaxMutatingInFlight = !on, 8, 8
			run(t, c)
		})
	}
}

// TestWithheldBodiesHoldNoSeats checks that other requests are served while many times more requests than the
// limit wait for their bodies.
func TestWithheldBodiesHoldNoSeats(t *testing.T) {
	withAndWithoutFairness(t, withheldBodiesHoldNoSeats)
}

func withheldBodiesHoldNoSeats(t *testing.T, c settings) {
	s := start(t, c)
	withholding(t, s, 40, "davetoken")
	for _, token := range []string{"davetoken", "evetoken", "nodetoken"} {
		r, err := http.NewRequest(
			"POST", s.URL()+"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", strings.NewReader(selfReview),
		)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		w, err := httpClient(t, s, false).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(w.Body)
		_ = w.Body.Close() // it was read
		if w.StatusCode != http.StatusCreated {
			t.Errorf("%s: %d %s", token, w.StatusCode, body)
		}
	}
	// With fairness, a request waits for its body with its seat for a moment, because most bodies arrive at once.
	const want = `apiserver_current_inflight_requests{request_kind="mutating"} 0`
	wait.Until(t, "the metrics to have the line "+want, func() bool {
		return strings.Contains(apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body, want)
	})
}

// TestSlowReadersHoldNoSeats checks that other requests are served while many times more requests than the limit
// wait for clients that do not read the response.
func TestSlowReadersHoldNoSeats(t *testing.T) { withAndWithoutFairness(t, slowReadersHoldNoSeats) }

func slowReadersHoldNoSeats(t *testing.T, c settings) {
	s := start(t, c)
	big := strings.Repeat("x", 1<<20)
	for i := range 8 {
		post(
			t, s, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"x":%q}}`, i, big),
			http.StatusCreated,
		)
	}
	post(t, s, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}]}`,
		http.StatusCreated)
	post(t, s, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"dave"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dave"}]}`, http.StatusCreated)
	admin(t, s).As("dave").AwaitAccess("list", "configmaps")
	const readers = 30
	for range readers {
		conn := dial(t, s, "http/1.1")
		if _, err := io.WriteString(
			conn,
			"GET /api/v1/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer davetoken\r\nAccept-Encoding: identity\r\n\r\n",
		); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil) // no more than the headers
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			t.Errorf("a slow reader: %d", answer.StatusCode)
		}
	}
	for _, token := range []string{"davetoken", "evetoken", "nodetoken"} {
		if a := apitest.Send(
			t, httpClient(t, s, false), "GET", s.URL()+"/version", "", "Authorization", "Bearer "+token,
		); a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", token, a.Status, a.Body)
		}
	}
}

// TestSlowBodiesEndWithTheServer checks that the server stops although requests wait for their bodies, and that
// these clients get a response.
func TestSlowBodiesEndWithTheServer(t *testing.T) {
	c := slowConfig(t)
	s := start(t, c)
	slow := withholding(t, s, 5, "davetoken")
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop(t, s) // fails if Stop takes longer than its limit
	}()
	for _, conn := range slow {
		r := bufio.NewReader(conn)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			if strings.HasPrefix(line, "HTTP/1.1 ") {
				if !strings.Contains(line, "429") {
					t.Errorf("answered %q", line)
				}
				break
			}
		}
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the server does not stop within 30 s")
	}
}
