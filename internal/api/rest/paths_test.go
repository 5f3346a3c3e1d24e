package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestOddRequests sends requests with odd paths and parameters and expects the codes of
// kube-apiserver, and a part of its message.
func TestOddRequests(t *testing.T) {
	_, server := verbsServer(t)
	c := caller{t, server}
	for path, body := range map[string]string{
		"/api/v1/namespaces": `{"metadata":{"name":"a"}}`,
		"/apis/apps/v1/namespaces/default/deployments": `{"metadata":{"name":"d"},` +
			`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	} {
		resp := c.send(t.Context(), http.MethodPost, path, "application/json", []byte(body))
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("POST %s: %d", path, resp.StatusCode)
		}
	}
	const (
		pods        = "/api/v1/namespaces/default/pods"
		deployments = "/apis/apps/v1/namespaces/default/deployments"
		malformed   = `resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax`
		noPath      = "the server could not find the requested resource"
		noDryRun    = "dryRun is not supported"
	)
	for _, test := range []struct {
		request string
		code    int
		message string
	}{
		// Subresources that connect, and logs, ignore resourceVersion.
		{"GET " + pods + "/p/log?resourceVersion=x", 404, `pods \"p\" not found`},
		{"GET " + pods + "/p/exec?resourceVersion=x", 404, `pods \"p\" not found`},
		{"POST " + pods + "/p/attach?resourceVersion=x", 404, `pods \"p\" not found`},
		{"GET " + pods + "/p/portforward?resourceVersion=x", 404, `pods \"p\" not found`},
		{"PATCH " + pods + "/p/proxy?resourceVersion=x", 404, `pods \"p\" not found`},
		{"PUT /api/v1/namespaces/default/services/p/proxy/a/b?resourceVersion=x", 503, `no endpoints available for service \"p\"`},
		{"DELETE /api/v1/nodes/p/proxy?resourceVersion=x", 404, `nodes \"p\" not found`},
		// kube-apiserver reads events without a watch cache.
		{"GET /api/v1/namespaces/default/events/e?resourceVersion=x", 400, "invalid resource version: " + malformed},
		{
			"GET /apis/events.k8s.io/v1/namespaces/default/events/e?resourceVersion=x", 400,
			"invalid resource version: " + malformed,
		},
		{"GET " + pods + "?resourceVersion=x", 400, "invalid resource version: " + malformed},
		{"GET " + pods + "/p?resourceVersion=x", 500, malformed},

		{"GET " + pods + "/x/exec?dryRun=All", 400, noDryRun},
		{"POST " + pods + "/x/attach?dryRun=", 400, noDryRun},
		{"GET " + pods + "/x/portforward?dryRun=x", 400, noDryRun},
		{"OPTIONS " + pods + "/x/proxy?dryRun=All", 400, noDryRun},
		{"DELETE /api/v1/nodes/x/proxy/a?dryRun=All", 400, noDryRun},
		{"PUT /api/v1/namespaces/default/services/x/proxy?dryRun=All", 400, noDryRun},
		{"GET " + pods + "/x/log?dryRun=All", 404, `pods \"x\" not found`},
		{"PUT " + pods + "/x/exec?dryRun=All", 405, ""},
		{"HEAD " + pods + "/x/proxy", 404, ""},
		{"HEAD " + pods + "/x/exec", 405, ""},
		{"HEAD /api/v1/nodes/x/proxy/a/b", 404, ""},
		{"OPTIONS /api/v1/nodes/x/proxy", 404, `nodes \"x\" not found`},
		{"OPTIONS " + pods + "/x/exec", 405, ""},

		{"GET /api/v1/watch/nodes/n/status", 404, noPath},
		{"POST /api/v1/watch/nodes/n/proxy", 404, noPath},
		{"GET /api/v1/watch/namespaces/default/pods/x/log", 404, noPath},
		{"GET /api/v1/watch/namespaces/a/status", 404, noPath},
		{"GET /api/v1/namespaces/a", 200, ""},
		{"GET /api/v1/namespaces/a/status", 200, ""},
		{"GET /api/v1/namespaces/a/namespaces/a", 404, noPath},
		{"GET /api/v1/namespaces/a/namespaces/a/status", 404, noPath},
		{"DELETE /api/v1/namespaces/a/namespaces/a", 404, noPath},
		{"GET /api/v1/watch/namespaces/a/namespaces/a", 404, noPath},
		{"GET " + deployments + "/d", 200, ""},
		{"GET " + deployments + "/d/", 200, ""},
		{"GET " + deployments + "/d//scale", 404, noPath},
		{"PUT " + deployments + "/d//status", 404, noPath},
		{"DELETE " + deployments + "/d//status", 404, noPath},
		{"POST /api/v1/nodes/x//proxy", 404, noPath},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		answer, code, err := c.bounded(method, path)
		if err != nil || code != test.code || !strings.Contains(string(answer), test.message) {
			t.Errorf("%s: %d %.300s %v, want %d %s", test.request, code, answer, err, test.code, test.message)
		}
	}
}

// bounded sends a request and reads the answer. Both together must take at most 20 seconds, because a watch that
// is served by mistake does not end by itself.
func (c caller) bounded(method, path string) (answer []byte, code int, err error) {
	const atMost = 20 * time.Second
	ctx, cancel := context.WithTimeout(c.t.Context(), atMost)
	defer cancel()
	resp := c.send(ctx, method, path, "application/json", nil)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return answer, resp.StatusCode, err
}

// TestCreatesThatKubeAPIServerAccepts creates objects that look wrong and are not: a LimitRange without a
// name, and objects with a resourceVersion that is no number.
func TestCreatesThatKubeAPIServerAccepts(t *testing.T) {
	_, server := verbsServer(t)
	c := caller{t, server}
	const namespace = "/api/v1/namespaces/default/"
	for body, want := range map[string]struct {
		collection string
		code       int
	}{
		`{"spec":{"limits":[]}}`:                                             {"limitranges", 201},
		`{"metadata":{"name":"a","resourceVersion":"a/b"}}`:                  {"configmaps", 201},
		`{"metadata":{"name":"b","resourceVersion":"-1"}}`:                   {"configmaps", 201},
		`{"metadata":{"name":"c","resourceVersion":"00"}}`:                   {"configmaps", 201},
		`{"metadata":{"name":"d","resourceVersion":"18446744073709551616"}}`: {"configmaps", 201},
		`{"metadata":{"name":"e","resourceVersion":"01"}}`:                   {"configmaps", 500},
		`{"metadata":{"name":"f","resourceVersion":"18446744073709551615"}}`: {"configmaps", 500},
		`{"metadata":{}}`: {"configmaps", 422},
	} {
		resp := c.send(t.Context(), http.MethodPost, namespace+want.collection, "application/json", []byte(body))
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want.code || strings.Contains(string(answer), `"a/b"`) {
			t.Errorf("%s: %d %.300s %v, want %d", body, resp.StatusCode, answer, err, want.code)
		}
		if want.collection == "limitranges" {
			var limits corev1.LimitRange
			if err := json.Unmarshal(answer, &limits); err != nil ||
				len(limits.Name) != len("fe5a8469-7221-4812-89b4-fdc093d6be8a") {
				t.Errorf("name %q %v", limits.Name, err)
			}
		}
	}
}

// TestDaemonSetsThatCannotBeRead writes a DaemonSet whose annotation with the generation of the template
// is no number, through every verb and the status. kube-apiserver could not read it from a shared store.
func TestDaemonSetsThatCannotBeRead(t *testing.T) {
	_, server := verbsServer(t)
	const collection = "/apis/apps/v1/namespaces/default/daemonsets"
	object := func(name, generation string) string {
		return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":%q,`+
			`"annotations":{"deprecated.daemonset.template.generation":%q}},`+
			`"spec":{"selector":{"matchLabels":{"a":"b"}},`+
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, name, generation)
	}
	send := caller{t, server}.sendAs
	if code, answer := send(
		http.MethodPost, collection, "application/json", object("d", "1"),
	); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	const changes = `{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"a b"}}}`
	const operations = `[{"op":"replace","path":"/metadata/annotations/deprecated.daemonset.template.generation",` +
		`"value":"a b"}]`
	for _, c := range []struct{ method, path, contentType, body string }{
		{"POST", "", "application/json", object("e", "a b")},
		{"POST", "", "application/yaml", object("e", "")},
		{"PUT", "/d", "application/json", object("d", "1.5")},
		{"PUT", "/d/status", "application/json", object("d", "1.5")},
		{"PATCH", "/d", "application/merge-patch+json", changes},
		{"PATCH", "/d", "application/strategic-merge-patch+json", changes},
		{"PATCH", "/d/status", "application/strategic-merge-patch+json", changes},
		{"PATCH", "/d", "application/json-patch+json", operations},
		{"PATCH", "/d?fieldManager=f&force=true", "application/apply-patch+yaml", object("d", "a b")},
		{"PATCH", "/f?fieldManager=f", "application/apply-patch+yaml", object("f", "a b")},
	} {
		code, answer := send(c.method, collection+c.path, c.contentType, c.body)
		if code != http.StatusBadRequest || !strings.Contains(
			answer, `DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing`,
		) {
			t.Errorf("%s %s %s: %d %.300s", c.method, c.path, c.contentType, code, answer)
		}
	}
}

// sendAs sends a body of a content type and returns the code and the body of the answer.
func (c caller) sendAs(method, path, contentType, body string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.server.Client().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// TestRefusedPatches sends patches whose result is refused: a generateName that cannot be in a path, and
// a Scale without an apiVersion, which is of no kind and therefore has no name.
func TestRefusedPatches(t *testing.T) {
	_, server := verbsServer(t)
	c := caller{t, server}
	const collection = "/apis/apps/v1/namespaces/default/deployments"
	const object = `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	if code, answer := c.sendAs(http.MethodPost, collection, "application/json", object); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	if code, answer := c.sendAs(
		http.MethodPut, collection+"/d/scale", "application/json", `{"metadata":{"name":"d"},"spec":{"replicas":2}}`,
	); code != http.StatusOK {
		t.Errorf("a Scale without a namespace: %d %s", code, answer)
	}
	for _, test := range []struct {
		path, contentType, body string
		code                    int
		message                 string
	}{
		{
			"/d", "application/merge-patch+json", `{"metadata":{"generateName":"-5%"}}`, 422,
			`metadata.generateName: Invalid value: \"-5%\": may not contain '%'`,
		},
		{
			"/d/scale", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b c"}},"spec":{"replicas":-1}}`, 422,
			`Scale.autoscaling \"d\" is invalid: [metadata.labels: Invalid value: \"b c\":`,
		},
		{
			"/d/scale", "application/merge-patch+json", `{"metadata":{"generation":-1}}`, 422,
			`Scale.autoscaling \"d\" is invalid: metadata.generation: Invalid value: -1: must be greater than or equal to 0`,
		},
		{
			"/d/scale", "application/merge-patch+json", `{"metadata":{"finalizers":["x"]}}`, 422,
			`Scale.autoscaling \"d\" is invalid: metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard ` +
				`finalizer name nor is it fully qualified`,
		},
		{
			"/d/scale", "application/json-patch+json", `[{"op":"replace","path":"/apiVersion"}]`, 400,
			"the name of the object (d based on URL) was undeterminable: name must be provided",
		},
		{
			"/d/scale", "application/merge-patch+json", `{"apiVersion":null}`, 400,
			"the name of the object (d based on URL) was undeterminable: name must be provided",
		},
	} {
		code, answer := c.sendAs(http.MethodPatch, collection+test.path, test.contentType, test.body)
		if code != test.code || !strings.Contains(answer, test.message) {
			t.Errorf("%s %s: %d %.400s, want %d %s", test.path, test.body, code, answer, test.code, test.message)
		}
	}
}
