package kubectlhistory_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// plugin runs the command against a server that keeps history for a day and whose clock the test advances.
type plugin struct {
	*servertest.Server
	t          *testing.T
	now        *clock.Clock
	kubeconfig string
}

func start(t *testing.T, controllers ...string) *plugin {
	now := clock.New(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := servertest.Default(controllers...)
	c.Testing.Clock = now
	c.Storage.HistoryRetention = []string{"24h"}
	s := servertest.Start(t, c)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &plugin{s, t, now, path}
}

// run runs the command and returns its output. If it fails, the error is the last line.
func (p *plugin) run(line string) string {
	p.t.Helper()
	var out strings.Builder
	p.runTo(p.t.Context(), &out, line)
	return out.String()
}

// runTo runs the command until it ends, or until ctx ends and it notices that.
func (p *plugin) runTo(ctx context.Context, out io.Writer, line string) {
	c := kubectlhistory.New(kubectlhistory.Options{Out: out, ErrOut: out, Now: p.now.Now, Getenv: func(name string) string {
		return map[string]string{"KUBECONFIG": p.kubeconfig}[name]
	}})
	c.SetArgs(strings.Fields(line))
	c.SetOut(out)
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(out, "error: %v\n", err)
	}
}

// expect runs the command and compares its output. Words replace revisions, UIDs and ages; one space replaces
// several.
func (p *plugin) expect(line, want string) {
	p.t.Helper()
	got := p.run(line)
	for _, r := range [][2]string{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "UID"},
		{`(Z|<unknown>)( +)\d+ `, "$1 REV "}, {`resourceVersion: "\d+"`, "resourceVersion: REV"}, {` +\n`, "\n"}, {`(\S) {2,}`, "$1 "},
	} {
		got = regexp.MustCompile(r[0]).ReplaceAllString(got, r[1])
	}
	if got != want {
		p.t.Errorf("%s prints\n%s\nwant\n%s", line, got, want)
	}
}

// contains runs the command and checks that its output has the texts.
func (p *plugin) contains(line string, texts ...string) {
	p.t.Helper()
	got := p.run(line)
	for _, text := range texts {
		if !strings.Contains(got, text) {
			p.t.Errorf("%s prints\n%s\nwithout %q", line, got, text)
		}
	}
}

const maps = "/api/v1/namespaces/default/configmaps"

// TestReads reads the past of a ConfigMap.
func TestReads(t *testing.T) {
	p := start(t)
	p.Create(maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"shop"}},"data":{"v":"1"}}`)
	p.Create(maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"v":"1"}}`)
	p.now.Advance(time.Minute)
	p.As("jane", "system:masters").Patch(maps+"/a", `{"data":{"v":"2","w":"2"}}`)
	p.now.Advance(time.Hour)
	p.Do("DELETE", maps+"/b", "")
	p.now.Advance(time.Minute)

	p.expect("log configmap a", `TIME REVISION TYPE USER REQUEST CHANGED
2026-11-01T12:01:00.000Z REV Updated jane (by kubernetes-admin) patch .data.v,.data.w
2026-11-01T12:00:00.000Z REV Created kubernetes-admin create <none>
`)
	p.expect("log cm/a --limit 1", `TIME REVISION TYPE USER REQUEST CHANGED
2026-11-01T12:01:00.000Z REV Updated jane (by kubernetes-admin) patch .data.v,.data.w
There are older changes; --limit 0 shows all.
`)
	p.contains("log cm a -o yaml --limit 1", "kind: ObjectHistory", "impersonator: kubernetes-admin")
	p.contains("log cm a -o json", `"kind": "ObjectHistory"`)
	p.contains("log cm a --uid x", "error: the history has no change of configmap/a with the UID x")
	p.contains("log cm b", "Deleted   kubernetes-admin")

	p.expect("get configmaps --as-of 2026-11-01T12:00:00Z", "NAME DATA AGE\na 1 62m\nb 1 62m\n")
	p.expect("get configmaps --as-of 2026-11-01T12:01:00.000Z -l app=shop", "NAME DATA AGE\na 2 62m\n")
	p.contains("get configmaps -A --as-of 62m", "NAMESPACE", "default", "b")
	p.expect("get cm/a cm/b --as-of 62m -o name", "configmap/a\nconfigmap/b\n")
	p.contains("get cm b --as-of 30m -o yaml", "kind: ConfigMap\n", "name: b\n")
	p.contains("get cm --as-of 30m -l app=shop -o json", `"kind": "List"`, `"kind": "ConfigMap"`)
	p.expect("get cm b --as-of 10s", "error: configmaps \"b\" not found as of 10s\n")
	p.expect("get cm -l a=b --as-of 10s", "There were no configmaps in namespace default as of 10s.\n")
	p.expect("get cm", "error: say as of when with --as-of: a time (RFC 3339), a duration before now such as 1h30m, or a resourceVersion\n")
	p.contains("get cm --as-of yesterday", "error: invalid asOf \"yesterday\": it has to be a time (RFC 3339)")
	p.expect("get cm --as-of 1h -o xml", "error: --output must be wide or yaml or json or name, not \"xml\"\n")
	p.expect("get widgets --as-of 1h", "error: the server has no resource type \"widgets\"\n")

	p.expect("diff cm a --as-of 62m", `--- configmap/a as of 62m
+++ configmap/a now
@@ -1,6 +1,7 @@
 apiVersion: v1
 data:
- v: "1"
+ v: "2"
+ w: "2"
 kind: ConfigMap
 metadata:
   creationTimestamp: "2026-11-01T12:00:00Z"
@@ -8,5 +9,5 @@
     app: shop
   name: a
   namespace: default
- resourceVersion: REV
+ resourceVersion: REV
   uid: UID
`)
	p.expect("diff cm a --as-of 1h --to 30m", "")
	p.contains("diff cm b --as-of 30m", "+++ configmap/b now (does not exist)\n", "-  v: \"1\"\n")
	p.contains("diff cm c --as-of 30m", "existed at neither time")

	// Without --as-of, diff shows the last change: an update, a deletion, or the creation.
	p.contains("diff cm a", "--- configmap/a as of ", "+++ configmap/a as of ", "-  v: \"1\"\n+  v: \"2\"\n+  w: \"2\"\n")
	p.contains("diff cm b", "(does not exist)\n", "-  v: \"1\"\n")
	p.Create(maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"data":{"v":"1"}}`)
	p.contains("diff cm d", "(does not exist)\n+++", "+  v: \"1\"\n")
	p.contains("diff cm nobody", "error: ", "nobody")
	p.expect("diff cm a --to 1h",
		"error: --to needs --as-of: a time (RFC 3339), a duration before now such as 1h30m, or a resourceVersion\n")
}
