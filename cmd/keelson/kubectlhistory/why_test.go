package kubectlhistory_test

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

func TestWhy(t *testing.T) {
	p := start(t, "namespace-controller")
	p.DefineWidgets()
	p.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	const widget = "/apis/example.com/v1/namespaces/shop/widgets"
	p.Do("POST", widget+"?fieldManager=operator",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["example.com/clean"]}}`)
	p.expect("why widgets a -n shop", `widget.example.com/a is not being deleted.
Last change: 2026-11-01T12:00:00.000Z by kubernetes-admin (create).

The server knows of nothing that it waits for.
`)
	p.now.Advance(time.Hour)
	p.As("jane", "system:masters").Do("DELETE", "/api/v1/namespaces/shop", "")
	wait.Until(t, "the deletion of the widget", func() bool { return p.Metadata(widget+"/a").DeletionTimestamp != nil })
	p.expect("why widget/a --namespace shop", `widget.example.com/a is being deleted since 2026-11-01T13:00:00Z, asked for by system:serviceaccount:kube-system:namespace-controller (update).
Last change: 2026-11-01T13:00:00.000Z by system:serviceaccount:kube-system:namespace-controller (update).

Finalizer example.com/clean, since 2026-11-01T13:00:00Z
    Its controller has to remove it. By managedFields, it was set by the field manager operator.
    Added: 2026-11-01T12:00:00.000Z by kubernetes-admin (create).
`)
	p.contains("why ns shop", "namespace/shop is being deleted since 2026-11-01T13:00:00Z, asked for by jane (by kubernetes-admin) (delete).\n",
		"NamespaceContent widgets.example.com\n    Left: 1 object of widgets.example.com, 1 of them with finalizers.\n"+
			"    - shop/a, being deleted, waits for example.com/clean (the field manager operator)\n")
	p.contains("why ns shop -o yaml", "kind: ObjectBlockers\n", "type: NamespaceContent\n")
	p.contains("why ns shop -o json", `"kind": "ObjectBlockers"`)
	p.expect("why ns none", "error: namespaces \"none\" not found\n")
	p.expect("why ns shop -o xml", "error: --output must be json or yaml, not \"xml\"\n")
	p.expect("why ns a b", "error: name one object: ns NAME, or ns/NAME\n")
}
