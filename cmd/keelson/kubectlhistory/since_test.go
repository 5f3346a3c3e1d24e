package kubectlhistory_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestSince lists changes since a time.
func TestSince(t *testing.T) {
	p := start(t)
	const shop = "/api/v1/namespaces/shop/configmaps"
	p.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	p.now.Advance(time.Hour)
	p.Create(maps, `{"metadata":{"name":"a","labels":{"app":"web"}},"data":{"v":"1"}}`)
	p.As("jane", "system:masters").Create(shop, `{"metadata":{"name":"b"}}`)
	p.now.Advance(time.Minute)
	p.As("jane", "system:masters").Patch(maps+"/a", `{"data":{"v":"2"}}`)
	p.Create("/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},
		"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx"}]}}}}`)
	p.Do("DELETE", maps+"/a", "")
	p.now.Advance(time.Minute)

	const header = "TIME TYPE OBJECT USER REQUEST CHANGED\n"
	const created = "2026-11-01T13:00:00.000Z Created configmap/a kubernetes-admin create <none>\n"
	const updated = "2026-11-01T13:01:00.000Z Updated configmap/a jane (by kubernetes-admin) patch .data.v\n"
	const deleted = "2026-11-01T13:01:00.000Z Deleted configmap/a kubernetes-admin delete <none>\n"
	const web = "2026-11-01T13:01:00.000Z Created deployment.apps/web kubernetes-admin create <none>\n"
	p.expect("since 10m", header+created+updated+web+deleted)
	p.expect("since 13:01", header+updated+web+deleted)
	p.expect("since 13:01 --newest-first", header+deleted+web+updated)
	p.expect("since 10m --newest-first --limit 2", header+deleted+web+"There may be earlier changes.\n")
	p.contains("since 10m --newest-first --watch", "error: --newest-first and --watch cannot be used together")
	p.expect("since 2026-11-01T13:01:00Z --by jane", header+updated)
	p.expect("since 10m --resource cm -l app=web", header+created+updated+deleted)
	p.expect("since 10m --resource deploy", header+web)
	p.expect("since 10m -n shop -o wide", "TIME REVISION TYPE OBJECT USER REQUEST CHANGED\n"+
		"2026-11-01T13:00:00.000Z REV Created configmap/b jane (by kubernetes-admin) create <none>\n")
	p.expect("since 10m -A --by jane", "NAMESPACE "+header+"shop 2026-11-01T13:00:00.000Z Created configmap/b jane (by kubernetes-admin) create <none>\n"+
		"default "+updated)
	p.contains("since 0 --resource ns", "Created   namespace/shop")

	got := p.run("since 10m --limit 2")
	rest, _, _ := strings.Cut(got[strings.LastIndex(got, "since ")+len("since "):], ".")
	if n := strings.Count(got, "\n"); n != 4 || !strings.Contains(got, "There may be later changes: those since ") {
		t.Errorf("--limit 2 prints\n%s", got)
	}
	p.expect("since "+rest, header+web+deleted)
	p.contains("since 10m -o yaml", "kind: ChangeList\n", "resource: deployments\n", "user: jane\n")
	p.contains("since 10m --limit 1 -o json", `"kind": "ChangeList"`, `"resourceVersion": "`)

	p.expect("since 1s", "There are no such changes in namespace default since 1s.\n")
	p.contains("since 1s -o json --by x", `"kind": "ChangeList"`, `"items": []`)
	p.expect("since 10m --resource widgets", "error: the server has no resource type \"widgets\"\n")
	p.contains("since", "error: say since when, for example 1h: ")
	p.contains("since x", `error: invalid since "x": it has to be a time (RFC 3339)`)
	p.expect("since 24:00", "error: \"24:00\" is not a time of day\n")
	p.expect("since 1h --limit -1", "error: --limit must not be negative\n")
	p.expect("since 1h --limit 1 --watch", "error: --limit and --watch cannot be used together\n")
	p.expect("since 1h -o name", "error: --output must be wide or yaml or json, not \"name\"\n")
	p.contains("since 1h -l a==b==c", "error: --selector: ")
}

// TestSinceWatch follows the changes, until an interrupt.
func TestSinceWatch(t *testing.T) {
	p := start(t)
	p.Create(maps, `{"metadata":{"name":"a"},"data":{"v":"1"}}`)
	ctx, interrupt := context.WithCancel(t.Context())
	var table, documents apitest.Log
	var running sync.WaitGroup
	running.Go(func() { p.runTo(ctx, &table, "since 0 --watch --resource configmaps") })
	running.Go(func() { p.runTo(ctx, &documents, "since 0s -w -o yaml") })
	wait.Until(t, "the first change", func() bool { return strings.Count(table.String(), "configmap/a") == 1 })
	p.Patch(maps+"/a", `{"data":{"v":"2"}}`)
	wait.Until(t, "the second change", func() bool { return strings.HasSuffix(table.String(), "patch     .data.v\n") })
	p.Create(maps, `{"metadata":{"name":"a-longer-name-than-before"}}`)
	wait.Until(t, "a change of another object", func() bool {
		return strings.HasSuffix(table.String(), " create    <none>\n") && strings.Contains(documents.String(), "name: a-longer-name-than-before\n")
	})
	interrupt()
	running.Wait()
	if text := table.String(); strings.Count(text, "\n") != 4 || strings.Contains(text, "error") {
		t.Errorf("it printed\n%s", text)
	}
	if text := documents.String(); !strings.HasPrefix(text, "---\n") || strings.Contains(text, "error") {
		t.Errorf("it printed\n%s", text)
	}
}

// TestSinceForbidden checks that a user without permission gets an error at once, without further attempts.
func TestSinceForbidden(t *testing.T) {
	p := start(t)
	content, err := os.ReadFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	content = bytes.Replace(content, []byte("client-certificate-data"), []byte("as: jane\n    client-certificate-data"), 1)
	if err := os.WriteFile(p.kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p.contains("since 1h --watch", "error: changes.history.keelson.dev is forbidden")
}
