package kubectlhistory_test

import (
	"strings"
	"testing"
	"time"
)

func TestBlame(t *testing.T) {
	p := start(t)
	const secrets = "/api/v1/namespaces/default/secrets"
	p.Create(secrets, `{"metadata":{"name":"a"},"data":{"v":"MQ==","w":"MQ=="}}`)
	p.now.Advance(time.Minute)
	for range 60 { // more than a page
		p.Patch(secrets+"/a", `{"metadata":{"labels":{"l":"1"}}}`)
		p.Patch(secrets+"/a", `{"metadata":{"labels":{"l":"2"}}}`)
	}
	p.now.Advance(time.Minute)
	p.As("jane", "system:masters").Patch(secrets+"/a", `{"data":{"v":"Mg=="}}`)
	p.expect("blame secret a", `TIME USER REQUEST FIELD VALUE
2026-11-01T12:02:00.000Z jane (by kubernetes-admin) patch .data.v ***
2026-11-01T12:00:00.000Z kubernetes-admin create .data.w ***
2026-11-01T12:00:00.000Z kubernetes-admin create .metadata.creationTimestamp 2026-11-01T12:00:00Z
2026-11-01T12:01:00.000Z kubernetes-admin patch .metadata.labels.l 2
2026-11-01T12:00:00.000Z kubernetes-admin create .metadata.name a
2026-11-01T12:00:00.000Z kubernetes-admin create .metadata.namespace default
2026-11-01T12:00:00.000Z kubernetes-admin create .metadata.uid UID
2026-11-01T12:00:00.000Z kubernetes-admin create .type Opaque
`)
	p.contains("blame secret/a -o yaml", "field: .data.v\n", "user: jane\n")
	if out := p.run("blame secret/a -o json"); strings.Contains(out, "Mg==") {
		t.Error(out)
	}
	p.Do("DELETE", secrets+"/a", "")
	p.expect("blame secret a", "error: secret/a is gone; `kubectl history log` shows its changes\n")
}
