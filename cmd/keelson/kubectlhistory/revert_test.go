package kubectlhistory_test

import (
	"strings"
	"testing"
	"time"
)

func TestRevert(t *testing.T) {
	p := start(t)
	for _, name := range []string{"a", "b", "gone"} {
		p.Create(maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"app":"shop"}},"data":{"v":"1"}}`)
	}
	uid := p.Metadata(maps + "/a").UID
	p.now.Advance(time.Minute)
	p.Patch(maps+"/a", `{"metadata":{"labels":{"app":"other"},"annotations":{"x":"y"}},"data":{"v":"2","w":"2"}}`)
	p.Do("DELETE", maps+"/gone", "")
	p.now.Advance(time.Minute)
	const difference = `--- configmap/a now
+++ configmap/a as of 2m
@@ -1,14 +1,11 @@
 apiVersion: v1
 data:
- v: "2"
- w: "2"
+ v: "1"
 kind: ConfigMap
 metadata:
- annotations:
- x: "y"
   creationTimestamp: "2026-11-01T12:00:00Z"
   labels:
- app: other
+ app: shop
   name: a
   namespace: default
   resourceVersion: REV
`
	p.expect("revert cm a --as-of 2m", difference+"configmap/a would be reverted\n"+
		"1 would be reverted, 0 skipped, 0 refused. Nothing was changed; --yes does it.\n")
	if body := p.Get(maps + "/a"); !strings.Contains(body, `"v":"2"`) {
		t.Error(body)
	}
	p.expect("revert cm -l app=shop --as-of 2m --yes", difference+"configmap/a reverted\nconfigmap/b skipped: it is as it was\n"+
		"configmap/gone skipped: it is gone; undelete brings it back\n"+
		"1 reverted, 2 skipped, 0 refused.\n")
	m := p.Metadata(maps + "/a")
	if body := p.Get(maps + "/a"); !strings.Contains(body, `"data":{"v":"1"}`) || m.UID != uid || m.Labels["app"] != "shop" || len(m.Annotations) > 0 {
		t.Error(body)
	}
	p.Patch(maps+"/b", `{"data":{"v":"2"},"immutable":true}`)
	p.contains("revert cm b --as-of 2m --yes", "configmap/b refused: ConfigMap \"b\" is invalid", "error: 1 refused\n")
	p.expect("revert cm a", "error: say as of when with --as-of: a time (RFC 3339), a duration before now such as 1h30m, or a resourceVersion\n")
	p.expect("revert cm none --as-of 2m", "error: configmaps \"none\" not found as of 2m\n")
	p.expect("revert cm -l a=b --as-of 2m", "error: there were no configmaps with these labels as of 2m\n")
}

// TestManagers reverts and undeletes objects of two resources, whose fields keep their managers.
func TestManagers(t *testing.T) {
	p := start(t)
	const secrets = "/api/v1/namespaces/default/secrets"
	const labels = `"labels":{"app":"shop"}`
	p.Create(maps+"?fieldManager=helm", `{"metadata":{"name":"a",`+labels+`},"data":{"v":"1","w":"1"}}`)
	p.Create(secrets+"?fieldManager=helm", `{"metadata":{"name":"a",`+labels+`},"stringData":{"v":"1"}}`)
	p.now.Advance(time.Minute)
	p.Patch(maps+"/a?fieldManager=mistake", `{"data":{"v":"2"}}`)
	p.Patch(secrets+"/a?fieldManager=mistake", `{"stringData":{"v":"2"}}`)
	p.now.Advance(time.Minute)

	p.contains("revert cm,secrets,configmaps -l app=shop --as-of 90s --yes", "configmap/a reverted\n", "secret/a reverted\n", "2 reverted, 0 skipped, 0 refused.\n")
	managers := func(path, want string) {
		t.Helper()
		var got []string
		for _, e := range p.Metadata(path).ManagedFields {
			got = append(got, e.Manager+" "+e.FieldsV1.GetRawString())
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, text, want)
		}
	}
	const fields = `helm {"f:data":{".":{},"f:v":{},"f:w":{}},"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`
	managers(maps+"/a", fields)
	p.now.Advance(time.Minute)
	p.Do("DELETE", maps+"/a", "")
	p.Do("DELETE", secrets+"/a", "")
	p.now.Advance(time.Minute)
	p.contains("undelete secrets,cm -l app=shop --as-of 61s --yes", "2 created, 0 skipped, 0 refused.\n")
	managers(maps+"/a", fields+"\n"+`kubectl-history {"f:metadata":{"f:annotations":{"f:history.keelson.dev/undeleted-uid":{}}}}`)
	p.expect("undelete ns,cm -l kubernetes.io/metadata.name=default --as-of 61s", "error: name one namespace: it is undeleted with what was in it\n")
}
