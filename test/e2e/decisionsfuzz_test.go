package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDecisionsAsKubeAPIServer sends random requests of random users with random roles to kube-apiserver and Keelson,
// and fails if Keelson allows a request that kube-apiserver forbids. It lists other differences. Requests are written
// to the connection without a client library: paths with unusual encodings, unknown methods, repeated headers.
func TestDecisionsAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	seed := fuzzSeed(t)
	world := newWorld(seed)
	tokens := filepath.Join(dir, "users.csv")
	if err := os.WriteFile(tokens, []byte(world.tokens()), 0o600); err != nil {
		t.Fatal(err)
	}
	reference := kubeAPIServer(t, dir, startEtcd(t, dir), "--token-auth-file", tokens)
	keelson := keelsonOn(t, dir, "--token-auth-file", tokens, "--authorization-mode", "Node,RBAC")
	for _, s := range []*apiServer{reference, keelson} {
		world.install(t, s)
	}
	var found differences
	tally := map[string]int{}
	var mu sync.Mutex // guards tally
	const workers = 8
	pairs := fuzzPairs(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)+2))
			a, b := &rawConnection{server: reference}, &rawConnection{server: keelson}
			defer a.close()
			defer b.close()
			for i := w; i < pairs; i += workers {
				r := world.request(rng)
				want, got := a.send(r.text), b.send(r.text)
				mu.Lock()
				tally[fmt.Sprint(want.code)]++
				mu.Unlock()
				if want.code != got.code || want.reason != got.reason {
					found.add(r.difference(want, got))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d pairs; kube-apiserver answered %v", pairs, tally)
	found.without(t, knownDecisions())
	found.report(t)
	if log, err := os.ReadFile(keelson.log); err != nil || strings.Contains(string(log), "panic") {
		t.Errorf("a panic is in the log of Keelson, or it cannot be read: %v", err)
	}
}

// knownDecisions are differences that are intended.
func knownDecisions() []known { return nil }

// world has users, groups and their roles.
type world struct {
	seed   uint64
	rng    *rand.Rand // for the roles
	users  []fuzzUser
	groups []string
}

type fuzzUser struct {
	name, token string
	groups      []string
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{seed: seed, groups: []string{"dev", "ops", "audit", "viewers", "a:b", "gr/oup"}}
	names := []string{
		"alice", "bob", "carol", "dave", "erin", "system:node:n1", "system:serviceaccount:ns1:sa1", "ns/user", "ALICE",
		"us er", "ünï", "system:admin",
	}
	for i, name := range names {
		u := fuzzUser{name: name, token: fmt.Sprintf("fuzz-token-%d", i)}
		for _, g := range w.groups {
			if rng.IntN(4) == 0 {
				u.groups = append(u.groups, g)
			}
		}
		if name == "system:node:n1" {
			u.groups = append(u.groups, "system:nodes")
		}
		w.users = append(w.users, u)
	}
	return w
}

func (w *world) tokens() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s,admin,admin,\"system:masters\"\n", adminToken)
	for i, u := range w.users {
		fmt.Fprintf(&b, "%s,%s,%d,\"%s\"\n", u.token, u.name, i, strings.Join(u.groups, ","))
	}
	return b.String()
}

func oneOf[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// some returns one to n elements of a list, perhaps with repetitions.
func some(rng *rand.Rand, n int, list ...string) []string {
	var out []string
	for range 1 + rng.IntN(n) {
		out = append(out, oneOf(rng, list...))
	}
	return out
}

// resourceNames are resources and subresources, existing ones and others.
func resourceNames() []string {
	return []string{"pods", "pods/log", "pods/status", "pods/exec", "pods/eviction", "pods/binding", "configmaps",
		"secrets", "services",
		"services/proxy", "nodes", "nodes/proxy", "nodes/status", "namespaces", "namespaces/finalize", "namespaces/status",
		"serviceaccounts",
		"serviceaccounts/token", "deployments", "deployments/scale", "deployments/status", "replicasets", "roles",
		"rolebindings",
		"clusterroles", "clusterrolebindings", "leases", "events", "users", "groups", "uids", "userextras/scopes",
		"selfsubjectaccessreviews",
		"subjectaccessreviews", "customresourcedefinitions", "certificatesigningrequests/approval", "unknowns"}
}

func apiGroups() []string {
	return []string{
		"", "apps", "rbac.authorization.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io",
		"apiextensions.k8s.io", "unknown.example.com",
	}
}

func objectNames() []string {
	return []string{"a", "b", "default", "n1", "sa1", "alice", "a.b", "kube-root-ca.crt"}
}

func namespaceNames() []string {
	return []string{"ns1", "ns1", "ns2", "ns2", "default", "kube-system", "missing"}
}

func verbNames() []string {
	return []string{
		"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "escalate", "bind",
		"approve", "proxy", "head", "use", "options",
	}
}

// rules returns random rules of a role.
func (w *world) rules(cluster bool) []any {
	rng := w.rng
	var rules []any
	for range 1 + rng.IntN(5) {
		if cluster && rng.IntN(4) == 0 {
			rules = append(rules, map[string]any{"verbs": some(rng, 2, "get", "post", "*", "head", "put", "delete"),
				"nonResourceURLs": some(rng, 2, "/healthz", "/healthz/*", "/metrics", "/version", "/api", "/api/*", "/apis*",
					"/apis/*", "*", "/openapi/*", "/a%2Fb", "/", "/debug/*", "/logs/*")})
			continue
		}
		rule := map[string]any{
			"verbs":     some(rng, 5, append(verbNames(), "*", "get", "list", "create", "impersonate")...),
			"apiGroups": some(rng, 2, append(apiGroups(), "*", "", "")...),
			"resources": some(
				rng, 6,
				append(
					resourceNames(), "*", "*/status", "*/scale", "pods/*", "*/*", "pods", "pods", "configmaps", "users", "groups",
				)...,
			),
		}
		if rng.IntN(3) == 0 {
			rule["resourceNames"] = some(rng, 2, append(objectNames(), "dev", "system:masters", "bob")...)
		}
		rules = append(rules, rule)
	}
	return rules
}

// subjects returns random subjects of a binding.
func (w *world) subjects() []any {
	rng := w.rng
	var out []any
	for range 1 + rng.IntN(2) {
		switch rng.IntN(5) {
		case 0, 1, 2:
			out = append(
				out, map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": oneOf(rng, w.users...).name},
			)
		case 3:
			out = append(
				out,
				map[string]any{
					"kind": "Group", "apiGroup": "rbac.authorization.k8s.io",
					"name": oneOf(rng, append(w.groups, "system:serviceaccounts:ns1", "system:unauthenticated")...),
				},
			)
		case 4:
			out = append(out, map[string]any{"kind": "ServiceAccount", "namespace": "ns1", "name": "sa1"})
		}
	}
	return out
}

// install creates the roles and some objects, which are the same on both servers.
func (w *world) install(t *testing.T, s *apiServer) {
	t.Helper()
	w.rng = rand.New(rand.NewPCG(w.seed, 1)) // the same roles on both servers
	post := func(path string, object map[string]any) {
		t.Helper()
		if status, answer := s.must(
			t, http.MethodPost, path, jsonType, jsonType, marshal(object),
		); status != http.StatusCreated && status != http.StatusConflict {
			t.Fatalf("%s: POST %s: %d %s", s.name, path, status, answer)
		}
	}
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	const group = "rbac.authorization.k8s.io"
	const rbac = "/apis/" + group + "/v1"
	for _, ns := range []string{"ns1", "ns2", "default"} {
		post("/api/v1/namespaces", map[string]any{"metadata": named(ns)})
		for _, name := range []string{"a", "b", "a.b"} {
			post("/api/v1/namespaces/"+ns+"/configmaps", map[string]any{"metadata": named(name)})
		}
	}
	const roles = 120
	for i := range roles {
		name := fmt.Sprintf("fuzz-%d", i)
		post(rbac+"/clusterroles", map[string]any{"metadata": named(name), "rules": w.rules(true)})
		for _, ns := range []string{"ns1", "ns2", "default"} {
			post(rbac+"/namespaces/"+ns+"/roles", map[string]any{"metadata": named(name), "rules": w.rules(false)})
		}
		ref := func(kind, of string) map[string]any {
			return map[string]any{"apiGroup": group, "kind": kind, "name": of}
		}
		if i%4 != 0 {
			post(
				rbac+"/clusterrolebindings",
				map[string]any{"metadata": named(name), "subjects": w.subjects(), "roleRef": ref("ClusterRole", name)},
			)
		}
		ns := oneOf(w.rng, "ns1", "ns2", "default")
		post(
			rbac+"/namespaces/"+ns+"/rolebindings",
			map[string]any{
				"metadata": named(name), "subjects": w.subjects(),
				"roleRef": ref(oneOf(w.rng, "Role", "ClusterRole"), fmt.Sprintf("fuzz-%d", w.rng.IntN(roles))),
			},
		)
	}
	// The authorizers know all roles when they know the last one.
	post(
		rbac+"/clusterroles",
		map[string]any{
			"metadata": named("last"),
			"rules":    []any{map[string]any{"verbs": []string{"get"}, "nonResourceURLs": []string{"/last"}}},
		},
	)
	post(
		rbac+"/clusterrolebindings",
		map[string]any{
			"metadata": named("last"), "subjects": []any{map[string]any{"kind": "User", "apiGroup": group, "name": "alice"}},
			"roleRef": map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": "last"},
		},
	)
	eventually(t, time.Minute, s.name+" knows the last role", func(context.Context) error {
		c := &rawConnection{server: s}
		defer c.close()
		if got := c.send(
			"GET /last HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer fuzz-token-0\r\n\r\n",
		); got.code != http.StatusNotFound {
			return errors.New(got.String())
		}
		return nil
	})
}

// rawRequest is a request as it is written to the connection.
type rawRequest struct {
	text  string
	what  []string // the unusual parts of it
	shape string   // its path without names
}

func (r *rawRequest) difference(want, got outcome) difference {
	d := difference{request: r.text, want: want, got: got}
	d.group = fmt.Sprintf("%d %s, Keelson %d %s: %s %v", want.code, want.reason, got.code, got.reason, r.shape, r.what)
	denied := func(o outcome) bool { return o.code == http.StatusForbidden || o.code == http.StatusUnauthorized }
	switch {
	case denied(want) && !denied(got) && got.code != http.StatusBadRequest && got.code != 0:
		d.wrong = "Keelson allows what kube-apiserver forbids"
	case got.code >= http.StatusInternalServerError && want.code < http.StatusInternalServerError:
		d.wrong = "Keelson fails"
	case got.code == 0 && want.code != 0:
		d.wrong = "Keelson cuts the connection"
	}
	return d
}

// request makes a random request.
func (w *world) request(rng *rand.Rand) *rawRequest {
	r := &rawRequest{}
	method := oneOf(rng, "GET", "GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "DELETE", "HEAD", "OPTIONS")
	if rng.IntN(40) == 0 {
		method = oneOf(rng, "get", "FOO", "TRACE", "PROPFIND", "POST ", "LIST", "WATCH")
		r.what = append(r.what, "method "+method)
	}
	path := w.path(rng, r)
	if rng.IntN(4) == 0 {
		path = oddPath(rng, path, r)
	}
	query := w.query(rng, method)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: server\r\n", method, path, query)
	switch n := rng.IntN(20); {
	case n == 0: // no credentials
		r.what = append(r.what, "anonymous")
	case n == 1:
		fmt.Fprintf(
			&b, "Authorization: Bearer %s\r\n", oneOf(rng, "wrong", "", "a b", "fuzz-token-0 ", strings.Repeat("x", 5000)),
		)
		r.what = append(r.what, "bad token")
	case n == 2:
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", adminToken)
	default:
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", oneOf(rng, w.users...).token)
	}
	if rng.IntN(4) == 0 {
		w.impersonation(rng, &b, r)
	}
	if rng.IntN(20) == 0 {
		h := oneOf(
			rng, "X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: x",
			"X-HTTP-Method-Override: DELETE", "Authorization: Bearer "+adminToken,
		)
		fmt.Fprintf(&b, "%s\r\n", h)
		r.what = append(r.what, strings.TrimSuffix(h, adminToken))
	}
	if method == "POST" || method == "PUT" || method == "PATCH" {
		// The body is invalid, so that nothing is written; authorization takes place before the body is read.
		fmt.Fprint(&b, "Content-Type: application/json\r\nContent-Length: 1\r\n\r\n[")
	} else {
		fmt.Fprint(&b, "\r\n")
	}
	r.text = b.String()
	r.shape = method + " " + r.shape
	return r
}

// path returns the path of a resource or of something else.
func (w *world) path(rng *rand.Rand, r *rawRequest) string {
	if rng.IntN(6) == 0 {
		p := oneOf(rng, "/", "/healthz", "/healthz/ping", "/livez", "/readyz", "/readyz/etcd", "/metrics", "/version",
			"/version/", "/api", "/api/", "/api/v1",
			"/apis", "/apis/", "/apis/apps", "/apis/apps/", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/logs/",
			"/debug/pprof/cmdline", "/debug/flags/v", "/unknown",
			"/apis/unknown.example.com", "/.well-known/openid-configuration", "/openid/v1/jwks", "/last", "/statusz", "/flagz",
			"/configz", "/api/v2/pods", "/api/v1/")
		r.shape = p
		return p
	}
	group := oneOf(rng, apiGroups()...)
	resource := oneOf(rng, resourceNames()...)
	resource, sub, _ := strings.Cut(resource, "/")
	// In most cases the group of the resource.
	if rng.IntN(8) > 0 {
		group = groupOf(resource)
	}
	root := "/api/v1"
	if group != "" {
		root = "/apis/" + group + "/v1"
	}
	shape := root
	if rng.IntN(12) == 0 {
		root, shape = root+"/watch", shape+"/watch"
	}
	if rng.IntN(3) > 0 {
		root, shape = root+"/namespaces/"+oneOf(rng, namespaceNames()...), shape+"/namespaces/NS"
	}
	root, shape = root+"/"+resource, shape+"/"+resource
	if rng.IntN(3) > 0 {
		root, shape = root+"/"+oneOf(rng, objectNames()...), shape+"/NAME"
		if sub != "" || rng.IntN(10) == 0 {
			if sub == "" || rng.IntN(6) == 0 {
				sub = oneOf(rng, "status", "scale", "log", "exec", "proxy", "proxy/a/b", "unknown", "finalize", "token")
			}
			root, shape = root+"/"+sub, shape+"/"+sub
		}
	}
	r.shape = shape
	return root
}

func groupOf(resource string) string {
	switch resource {
	case "deployments", "replicasets":
		return "apps"
	case "roles", "rolebindings", "clusterroles", "clusterrolebindings":
		return "rbac.authorization.k8s.io"
	case "leases":
		return "coordination.k8s.io"
	case "selfsubjectaccessreviews", "subjectaccessreviews":
		return "authorization.k8s.io"
	case "customresourcedefinitions":
		return "apiextensions.k8s.io"
	case "certificatesigningrequests":
		return "certificates.k8s.io"
	}
	return ""
}

// oddPath writes a path in an unusual way.
func oddPath(rng *rand.Rand, path string, r *rawRequest) string {
	segments := strings.Split(path, "/")
	i := rng.IntN(len(segments))
	odd := oneOf(rng, "dot segment", "two dots", "escaped dots", "empty segment", "trailing slash", "escaped slash",
		"escaped letter", "NUL", "bad UTF-8",
		"upper case", "semicolon", "escaped percent", "two leading slashes", "backslash", "question mark", "space",
		"bad escape", "absolute", "long segment", "fragment")
	switch odd {
	case "dot segment":
		segments[i] += "/."
	case "two dots":
		segments[i] += "/x/.."
	case "escaped dots":
		segments[i] += "/x/%2e%2e"
	case "empty segment":
		segments[i] += "/"
	case "trailing slash":
		path += "/"
	case "escaped slash":
		segments[i] += "%2Fx"
	case "escaped letter":
		if segments[i] != "" {
			segments[i] = fmt.Sprintf("%%%02x%s", segments[i][0], segments[i][1:])
		}
	case "NUL":
		segments[i] += "%00"
	case "bad UTF-8":
		segments[i] += "%ff%fe"
	case "upper case":
		segments[i] = strings.ToUpper(segments[i])
	case "semicolon":
		segments[i] += ";x"
	case "escaped percent":
		segments[i] += "%2561"
	case "two leading slashes":
		segments = append([]string{""}, segments...)
	case "backslash":
		segments[i] += `\x`
	case "question mark":
		segments[i] += "%3Fx"
	case "space":
		segments[i] += "%20"
	case "bad escape":
		segments[i] += "%zz"
	case "absolute":
		segments[0] = "https://other"
	case "long segment":
		segments[i] += strings.Repeat("x", 300)
	case "fragment":
		segments[i] += "%23x"
	}
	if odd != "trailing slash" {
		path = strings.Join(segments, "/")
	}
	r.what = append(r.what, odd)
	return path
}

// query returns a query with parameters that have an influence on the authorized verb. Deletions are dry runs.
func (w *world) query(rng *rand.Rand, method string) string {
	var q []string
	if method != "GET" && method != "HEAD" {
		q = append(q, "dryRun=All")
	}
	for range rng.IntN(3) {
		p := oneOf(rng, "watch=1", "watch=true", "watch=false", "watch=0", "watch=", "watch", "watch=yes", "watch=TRUE",
			"fieldSelector=metadata.name%3Da",
			"fieldSelector=metadata.name%3D%3Da", "fieldSelector=metadata.name!%3Da",
			"fieldSelector=metadata.name%3Da,metadata.namespace%3Dns1", "fieldSelector=%3D", "fieldSelector=spec.nodeName%3Dn1",
			"labelSelector=a%3Db", "labelSelector=a%20in%20(b)", "labelSelector=%21%21", "limit=1", "limit=x",
			"timeoutSeconds=1", "resourceVersion=0", "resourceVersion=x",
			"timeout=1s", "timeout=x", "pretty=1", "a=%zz", "a;b", "follow=true", "container=c", "command=x", "namespace=ns2",
			"name=b", "dryRun=All", "propagationPolicy=x", "sendInitialEvents=true", "verb=get")
		q = append(q, p)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + strings.Join(q, "&")
}

// impersonation returns headers that impersonate another user.
func (w *world) impersonation(rng *rand.Rand, b *strings.Builder, r *rawRequest) {
	users := []string{
		"alice", "bob", "carol", "system:serviceaccount:ns1:sa1", "system:serviceaccount:ns2:default",
		"system:serviceaccount:x", "system:admin", "system:node:n1", "system:anonymous", "", " ",
	}
	if rng.IntN(8) > 0 {
		fmt.Fprintf(b, "Impersonate-User: %s\r\n", oneOf(rng, users...))
		r.what = append(r.what, "as user")
	}
	if rng.IntN(3) == 0 {
		for range 1 + rng.IntN(2) {
			fmt.Fprintf(
				b, "%s: %s\r\n", oneOf(rng, "Impersonate-Group", "impersonate-group"),
				oneOf(rng, "dev", "ops", "system:masters", "system:authenticated", "system:unauthenticated", "system:nodes", ""),
			)
		}
		r.what = append(r.what, "as group")
	}
	if rng.IntN(6) == 0 {
		fmt.Fprintf(b, "Impersonate-Uid: %s\r\n", oneOf(rng, "1", "x", ""))
		r.what = append(r.what, "as uid")
	}
	if rng.IntN(6) == 0 {
		fmt.Fprintf(
			b, "Impersonate-Extra-%s: %s\r\n", oneOf(rng, "scopes", "Scopes", "a%2fb", "%zz", "a.b", "é"),
			oneOf(rng, "x", "", "a b"),
		)
		r.what = append(r.what, "with extra")
	}
	if rng.IntN(20) == 0 {
		fmt.Fprintf(b, "Impersonate-User: bob\r\n")
		r.what = append(r.what, "as user twice")
	}
}

// rawConnection sends requests unchanged, on one connection until the server closes it.
type rawConnection struct {
	server *apiServer
	conn   *tls.Conn
	reader *bufio.Reader
}

func (c *rawConnection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// send sends a request and returns the response. It tries again once on a new connection if the server has closed the
// previous connection meanwhile.
func (c *rawConnection) send(text string) outcome {
	reused := c.conn != nil
	o, err := c.try(text)
	if err != nil && reused {
		c.close()
		o, err = c.try(text)
	}
	if err != nil {
		c.close()
		return outcome{message: err.Error()}
	}
	return o
}

func (c *rawConnection) try(text string) (outcome, error) {
	const patience = 30 * time.Second
	if c.conn == nil {
		//nolint:gosec // the server runs on this machine
		conn, err := tls.Dial(
			"tcp", strings.TrimPrefix(c.server.url, "https://"),
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
		)
		if err != nil {
			return outcome{}, err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return outcome{}, err
	}
	// A server may respond and close the connection before it has read the whole request.
	_, unsent := io.WriteString(c.conn, text)
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		return outcome{}, errors.Join(unsent, err)
	}
	o := outcome{code: resp.StatusCode}
	if resp.StatusCode < http.StatusMultipleChoices {
		if resp.ContentLength < 0 || resp.Close {
			c.close() // the response may be a watch, which does not end
			return o, nil
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return o, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return o, err
	}
	var status struct{ Reason, Message string }
	if json.Unmarshal(body, &status) == nil {
		o.reason, o.message = status.Reason, status.Message
	} else {
		o.message = string(body)
	}
	if resp.Close {
		c.close()
	}
	return o, nil
}
