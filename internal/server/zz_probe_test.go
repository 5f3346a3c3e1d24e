package server_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

func TestProbe(t *testing.T) {
	s, now := pastServer(t)
	const tenant = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"tenant"}}`
	const theirs = "/api/v1/namespaces/tenant/configmaps"
	s.Create("/api/v1/namespaces", tenant)
	s.Create(theirs, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"secret"},"data":{"v":"of the first tenant"}}`)
	old := s.Metadata(theirs + "/secret").ResourceVersion
	now.Advance(time.Minute)
	s.Do(http.MethodDelete, "/api/v1/namespaces/tenant", "")
	s.Gone("/api/v1/namespaces/tenant")
	now.Advance(time.Hour)
	s.Create("/api/v1/namespaces", tenant)
	s.Create(theirs, `{"metadata":{"name":"a"},"data":{"v":"1"}}`)
	s.Create(theirs, `{"metadata":{"name":"b"},"data":{"v":"1"}}`)
	now.Advance(time.Minute)
	s.Patch(theirs+"/a", `{"data":{"v":"2"}}`)
	grant := func(name, rules string) {
		s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/roles", fmt.Sprintf(
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%q},"rules":[%s]}`, name, rules))
		s.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/rolebindings", fmt.Sprintf(
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%[1]q},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[1]q},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[1]q}]}`, name))
	}
	grant("reader", `{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list"]}`)
	grant("historian", `{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","readhistory"]},
		{"apiGroups":[""],"resources":["configmaps/history","configmaps/blockers"],"verbs":["get"]},
		{"apiGroups":["history.keelson.dev"],"resources":["changes"],"verbs":["list","watch"]}`)
	grant("named", `{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["a"],"verbs":["get","list","readhistory"]},
		{"apiGroups":[""],"resources":["configmaps/history"],"resourceNames":["a"],"verbs":["get"]}`)
	now.Advance(time.Minute)
	apitest.Eventually(t, "roles", func() (bool, string) {
		a := s.As("named").Send("GET", theirs+"/a/history", "")
		return a.Status == http.StatusOK, a.Body
	})
	show := func(user, method, path string, headers ...string) {
		done := make(chan apitest.Answer, 1)
		go func() { done <- s.As(user).Send(method, path, "", headers...) }()
		select {
		case a := <-done:
			t.Logf("%s %s %s: %d %.300s", user, method, path, a.Status, a.Body)
		case <-time.After(8 * time.Second):
			t.Logf("%s %s %s: HANGS", user, method, path)
		}
	}
	tok := func(rv string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":` + rv + `,"start":"a"}`))
	}
	show("reader", "GET", theirs+"?continue="+tok(old))
	show("historian", "GET", theirs+"?continue="+tok(old))
	show("historian", "GET", theirs+"?asOf=1s&continue="+tok(old))
	show("reader", "GET", theirs+"?asOf=1s&continue="+tok(old))
	show("historian", "GET", theirs+"?resourceVersionMatch=Exact&resourceVersion="+old)
	show("historian", "GET", theirs+"?resourceVersion="+old+"&limit=5")
	show("historian", "GET", theirs+"/secret/history")
	show("historian", "GET", theirs+"/none/history")
	show("historian", "GET", theirs+"/a/history?continue=9223372036854775807")
	show("historian", "GET", theirs+"/a/history?continue=5")
	show("historian", "GET", "/api/v1/namespaces/tenant/history")
	const ch = "/apis/history.keelson.dev/v1alpha1/namespaces/tenant/changes"
	show("historian", "GET", ch+"?since=1&limit=2")
	show("historian", "GET", ch+"?continue=1&limit=1")
	show("historian", "GET", ch+"?since=9223372036854775807")
	show("historian", "GET", ch+"?continue=9223372036854775807")
	show("historian", "GET", ch+"?watch=1&timeoutSeconds=2&since=1")
	show("historian", "GET", ch+"?watch=1&timeoutSeconds=2&since=9223372036854775807")
	show("historian", "GET", ch+"?watch=1&timeoutSeconds=2&since=9223372036854775806")
	show("historian", "GET", ch+"?watch=1&timeoutSeconds=2&continue=9223372036854775807")
	show("historian", "GET", "/apis/history.keelson.dev/v1alpha1/watch/namespaces/tenant/changes?timeoutSeconds=2")
	show("historian", "GET", "/apis/history.keelson.dev/v1alpha1/changes")
	show("historian", "GET", ch+"?fieldSelector=metadata.name=a")
	show("historian", "GET", ch+"?fieldSelector=metadata.namespace=other")
	for _, v := range []string{"0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "-0001-01-01T00:00:00Z", "2562047h47m16s", "2562048h", "NaNh", "+1h", "-0s", "1e9h", "0", "00001", "18446744073709551615", "9223372036854775807", "%ff%fe", "1h%00", ".5h"} {
		show("historian", "GET", theirs+"/a?asOf="+v)
		show("historian", "GET", ch+"?limit=1&since="+v)
	}
	for _, p := range []string{theirs + "?asOf=1s&fieldSelector=metadata.name=a", theirs + "?asOf=1s&fieldSelector=metadata.name=b",
		theirs + "?asOf=1s&fieldSelector=metadata.name=a&fieldSelector=metadata.name=b",
		theirs + "?asOf=1s&fieldSelector=metadata.name=b&fieldSelector=metadata.name=a",
		theirs + "?asOf=1s&fieldSelector=metadata.name%3Da,metadata.name=b", theirs + "?asOf=1s&fieldSelector=metadata.name!=a",
		theirs + "?asOf=1s&fieldSelector=metadata.name=a%26",
		theirs + "/b/history", theirs + "/a/history?name=b", theirs + "/a%2fhistory", theirs + "/a/history/", theirs + "/a/history/../../b/history", theirs + "/a/history%2f..%2f..%2fb/history", theirs + "/b?asOf=1s", theirs + "/a?asOf=1s", theirs + "/a/history?objects=true"} {
		show("named", "GET", p)
	}
	for _, m := range []string{"HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "FOO"} {
		show("kubernetes-admin", m, theirs+"/a/history", "Content-Type", "application/merge-patch+json")
		show("kubernetes-admin", m, theirs+"/a/blockers")
		show("kubernetes-admin", m, ch)
	}
	s2 := s.As("root", "system:masters")
	for _, p := range []string{"/apis/apps/v1/namespaces/default/deployments/x/scale?asOf=1h", "/api/v1/namespaces/tenant/pods/x/log?asOf=1h", "/api/v1/namespaces/tenant/pods/x/exec?asOf=1h",
		"/api/v1/namespaces/tenant/status?asOf=1h", theirs + "/a/history?asOf=1h", theirs + "/a/blockers?asOf=1h",
		theirs + "?asOf=1s&limit=-5", theirs + "?asOf=1s&limit=99999999999999999999", theirs + "?asOf=1s&limit=9223372036854775807", theirs + "?asOf=1s&timeoutSeconds=99999999999",
		ch + "?limit=9223372036854775807", ch + "?limit=99999999999999999999", ch + "?labelSelector=%ff", ch + "?fieldSelector=%ff=x",
		"/api/v1/watch/namespaces/tenant/configmaps?asOf=1h",
	} {
		a := s2.Send("GET", p, "")
		t.Logf("root %s: %d %.250s", p, a.Status, a.Body)
	}
	a := s2.Send("DELETE", theirs+"?asOf=1h", "")
	t.Logf("deletecollection: %d %.250s", a.Status, a.Body)
	_ = url.QueryEscape
	_ = strings.Join
}
