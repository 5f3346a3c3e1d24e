package blockers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/api/blockers"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const (
	shop       = "/api/v1/namespaces/shop"
	widgets    = "/apis/example.com/v1/namespaces/shop/widgets"
	foreground = `{"propagationPolicy":"Foreground"}`

	apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
	// unavailable is an APIService whose Service does not exist.
	unavailable = `{"metadata":{"name":"v1.hidden-group.example.com"},"spec":{"group":"hidden-group.example.com","version":"v1",
		"groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,"service":{"name":"none","namespace":"default"}}}`
)

// start starts a server that keeps history for a day and has the namespace shop. The test moves the returned clock
// of the server.
func start(t *testing.T, controllers ...string) (*servertest.Server, *clock.Clock) {
	now := clock.New(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := servertest.Default(controllers...)
	c.Testing.Clock = now
	c.Storage.HistoryRetention = []string{"24h"}
	s := servertest.Start(t, c)
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	s.Create(shop+"/serviceaccounts", `{"metadata":{"name":"default"}}`)
	return s, now
}

func parse(t *testing.T, body string) (b blockers.ObjectBlockers) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &b); err != nil || b.Kind != "ObjectBlockers" || b.APIVersion != "history.keelson.dev/v1alpha1" {
		t.Fatalf("%v: %s", err, body)
	}
	return b
}

// read returns the blockers of the object at a path.
func read(t *testing.T, c *apitest.Client, path string) blockers.ObjectBlockers {
	t.Helper()
	return parse(t, c.Get(path+"/blockers"))
}

// describe returns an item in a line: type, name, since, owner, user or field manager of the change, objects, message.
func describe(b *blockers.Blocker) string {
	parts := []string{string(b.Type), b.Name}
	if b.Since != nil {
		parts = append(parts, b.Since.UTC().Format("since 15:04"))
	}
	if b.Owner != "" {
		parts = append(parts, "owner "+b.Owner)
	}
	if c := b.Change; c != nil {
		parts = append(parts, fmt.Sprintf("change %s/%s/%s", c.User, c.FieldManager, c.Verb))
	}
	if b.Count > 0 {
		parts = append(parts, fmt.Sprint(b.Count))
	}
	for _, o := range b.Objects {
		text := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		if o.Deleting {
			text += " deleting"
		}
		for _, f := range o.Finalizers {
			text += " " + f.Name + " (" + f.Owner + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(append(parts, b.Message), " | ")
}

// expect compares the items of the given types.
func expect(t *testing.T, b blockers.ObjectBlockers, types []blockers.Type, want ...string) {
	t.Helper()
	var got []string
	for i := range b.Items {
		if types == nil || slices.Contains(types, b.Items[i].Type) {
			got = append(got, describe(&b.Items[i]))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\nnot examined: %q", strings.Join(got, "\n"), strings.Join(want, "\n"), b.NotExamined)
	}
}

// TestNamespace deletes a namespace in which a finalizer keeps a custom resource.
func TestNamespace(t *testing.T) {
	s, now := start(t, "namespace-controller")
	s.DefineWidgets()
	s.Do("POST", widgets+"?fieldManager=operator",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["example.com/clean"]}}`)
	now.Advance(time.Hour)
	s.As("jane", "system:masters").Do("DELETE", shop, "")
	types := []blockers.Type{blockers.Finalizer, blockers.NamespaceContent}
	const kept = "NamespaceContent | widgets.example.com | 1 | shop/a deleting example.com/clean (the field manager operator)" +
		" | Left: 1 object of widgets.example.com, 1 of them with finalizers."
	var b blockers.ObjectBlockers
	wait.Seen(t, "only the widget to be left", func() (bool, string) {
		b = read(t, s.Client, shop)
		text, _ := json.Marshal(b)
		return len(b.Items) > 1 && strings.Contains(string(text), `"ContentRemaining`) || strings.Contains(string(text), "SomeFinalizersRemain"), string(text)
	})
	expect(t, b, types, "Finalizer | kubernetes | since 13:00 | owner the namespace controller"+
		" | The namespace controller removes it when nothing is left in the namespace.", kept)
	if b.DeletionTimestamp == nil || b.Deletion == nil || b.Deletion.User != "jane" || b.Deletion.Verb != "delete" || b.Object.Name != "shop" {
		t.Errorf("%+v", b)
	}
	expect(t, b, []blockers.Type{blockers.Condition},
		"Condition | NamespaceContentRemaining | since 13:00 | It is True with the reason SomeResourcesRemain: "+
			"Some resources are remaining: widgets.example.com has 1 resource instances",
		"Condition | NamespaceFinalizersRemaining | since 13:00 | It is True with the reason SomeFinalizersRemain: "+
			"Some content in the namespace has finalizers remaining: example.com/clean in 1 resource instances")

	b = read(t, s.Client, widgets+"/a")
	expect(t, b, nil, "Finalizer | example.com/clean | since 13:00 | owner the field manager operator | change kubernetes-admin/operator/create"+
		" | Its controller has to remove it. By managedFields, it was set by the field manager operator.")
	if b.Deletion == nil || b.Deletion.User != "system:serviceaccount:kube-system:namespace-controller" || b.Deletion.Reason == "" {
		t.Errorf("the deletion is %+v", b.Deletion)
	}
}

// TestDependents deletes an owner in the foreground, whose dependents have finalizers or do not block it.
func TestDependents(t *testing.T) {
	s, _ := start(t, "garbage-collector-controller")
	s.Create(shop+"/configmaps", `{"metadata":{"name":"owner"}}`)
	uid := s.Metadata(shop + "/configmaps/owner").UID
	dependent := func(name, fields string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["example.com/wait"],
			"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q%s}]}}`, name, uid, fields)
	}
	s.Do("POST", shop+"/secrets?fieldManager=tool", dependent("blocks", `,"blockOwnerDeletion":true`))
	s.Create(shop+"/secrets", dependent("free", ""))
	s.Do("DELETE", shop+"/configmaps/owner", foreground)
	wait.Until(t, "the deletion of the dependent", func() bool { return s.Metadata(shop+"/secrets/blocks").DeletionTimestamp != nil })
	b := read(t, s.Client, shop+"/configmaps/owner")
	expect(t, b, nil, "Finalizer | foregroundDeletion | since 12:00 | owner the garbage collector | change kubernetes-admin//delete"+
		" | The garbage collector removes it when no dependent with blockOwnerDeletion is left.",
		"Dependent | secrets | 1 | shop/blocks deleting example.com/wait (the field manager tool)"+
			" | The garbage collector first deletes 1 object of secrets with blockOwnerDeletion.")
	if text, _ := json.Marshal(b); strings.Contains(string(text), "free") {
		t.Errorf("a dependent that does not block is named: %s", text)
	}
	if len(b.NotExamined) > 0 {
		t.Error(b.NotExamined)
	}
}

// TestVolumes deletes a claim that a pod uses, and the volume that it is bound to.
func TestVolumes(t *testing.T) {
	s, _ := start(t)
	s.Create(shop+"/persistentvolumeclaims", `{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"volumeName":"v",
		"resources":{"requests":{"storage":"1Gi"}}}}`)
	s.Create("/api/v1/persistentvolumes", `{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},
		"hostPath":{"path":"/x"},"claimRef":{"namespace":"shop","name":"data"}}}`)
	s.Patch("/api/v1/persistentvolumes/v/status", `{"status":{"phase":"Bound"}}`)
	pod := `{"metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}],
		"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":%q}}]}}`
	s.Create(shop+"/pods", fmt.Sprintf(pod, "user", "n1", "data"))
	s.Create(shop+"/pods", fmt.Sprintf(pod, "pending", "", "data"))
	s.Create(shop+"/pods", fmt.Sprintf(pod, "other", "n1", "more"))
	s.Do("DELETE", shop+"/persistentvolumeclaims/data", "")
	s.Do("DELETE", "/api/v1/persistentvolumes/v", "")
	b := read(t, s.Client, shop+"/persistentvolumeclaims/data")
	expect(t, b, nil, "Finalizer | kubernetes.io/pvc-protection | since 12:00 | owner the PVC protection controller of kube-controller-manager"+
		" | change kubernetes-admin/Go-http-client/create | The PVC protection controller of kube-controller-manager removes it when no pod uses the claim.",
		"Dependent | pods | 1 | shop/user | The claim is used on nodes by 1 object of pods.")
	expect(t, read(t, s.Client, "/api/v1/persistentvolumes/v"), []blockers.Type{blockers.Dependent},
		"Dependent | persistentvolumeclaims | 1 | shop/data deleting kubernetes.io/pvc-protection "+
			"(the PVC protection controller of kube-controller-manager) | The volume is bound to 1 object of persistentvolumeclaims.")
}

// TestPod deletes a pod whose kubelet does not answer.
func TestPod(t *testing.T) {
	s, now := start(t)
	s.Create("/api/v1/nodes", `{"metadata":{"name":"n1"}}`)
	s.Patch("/api/v1/nodes/n1/status", `{"status":{"conditions":[{"type":"KernelOdd","status":"False"},{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-01T11:00:00Z"}]}}`)
	s.Create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
		`{"metadata":{"name":"n1"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"2026-11-01T10:59:00.000000Z"}}`)
	for name, node := range map[string]string{"a": "n1", "b": "gone"} {
		s.Create(shop+"/pods", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}]}}`, name, node))
		s.Do("DELETE", shop+"/pods/"+name, "")
	}
	expect(t, read(t, s.Client, "/api/v1/nodes/n1"), nil, "Condition | Ready | since 11:00 | It is Unknown.")
	types := []blockers.Type{blockers.GracePeriod}
	expect(t, read(t, s.Client, shop+"/pods/a"), types, "GracePeriod | 2026-11-01T12:00:30Z | since 12:00 | owner the kubelet of the node n1 | 1 | n1"+
		" | The kubelet of the node n1 has until 2026-11-01T12:00:30Z to end the containers. The condition Ready of the node is Unknown since"+
		" 2026-11-01T11:00:00Z. Its Lease was renewed at 2026-11-01T10:59:00Z.")
	now.Advance(time.Minute)
	expect(t, read(t, s.Client, shop+"/pods/b"), types, "GracePeriod | 2026-11-01T12:00:30Z | since 12:00 | owner the kubelet of the node gone | 1 | gone"+
		" | The grace period has ended, and the kubelet of the node gone has not confirmed that the containers have. This node does not exist.")
}

// TestConditions reads objects that are not being deleted.
func TestConditions(t *testing.T) {
	s, _ := start(t)
	const deployments = "/apis/apps/v1/namespaces/shop/deployments"
	s.Create(deployments, `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	s.Patch(deployments+"/web/status", `{"status":{"observedGeneration":1,"conditions":[
		{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable","message":"no minimum","lastTransitionTime":"2026-11-01T11:30:00Z"},
		{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable"},
		{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","lastTransitionTime":"2026-11-01T11:31:00Z"}]}}`)
	s.As("jane", "system:masters").Patch(deployments+"/web", `{"spec":{"replicas":3}}`)
	b := read(t, s.Client, deployments+"/web")
	expect(t, b, nil, "Generation | observedGeneration | Its controller has not acted on the last change: the generation is 2, it has observed 1.",
		"Condition | Available | since 11:30 | It is False with the reason MinimumReplicasUnavailable: no minimum",
		"Condition | ReplicaFailure | since 11:31 | It is True with the reason FailedCreate.")
	if c := b.LastChange; c == nil || c.User != "jane" || c.Verb != "patch" || c.ResourceVersion == "" || b.DeletionTimestamp != nil {
		t.Errorf("%+v", b)
	}
	s.Create(shop+"/configmaps", `{"metadata":{"name":"a","finalizers":["example.com/x"]}}`)
	expect(t, read(t, s.Client, shop+"/configmaps/a"), nil) // the object waits for nothing

	s.DefineWidgets() // the status of a custom resource may have any form
	for name, status := range map[string]string{"a": `"x"`, "b": `{"conditions":"x"}`, "c": `{"conditions":[1,{"type":"Ready","status":true}]}`} {
		s.Create(widgets, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":7,"status":%s}`, name, status))
		expect(t, read(t, s.Client, widgets+"/"+name), nil)
	}
	s.Create(widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"d"},"status":{"observedGeneration":0,
		"conditions":[{"type":"Synced","status":"Unknown"}]}}`)
	expect(t, read(t, s.Client, widgets+"/d"), nil,
		"Generation | observedGeneration | Its controller has not acted on the last change: the generation is 1, it has observed 0.",
		"Condition | Synced | It is Unknown.")

	s.Run([]apitest.Step{
		{"GET", shop + "/configmaps/none/blockers", "", 404, `configmaps \"none\" not found`},
		{"GET", widgets + "/none/blockers", "", 404, "not found"},
		{"GET", shop + "/configmaps/a/blockers/more", "", 404, ""},
		{"POST", shop + "/configmaps/a/blockers", "{}", 404, ""},
		{"PUT", widgets + "/a/blockers", "{}", 404, ""},
	})
	if strings.Contains(s.Get("/api/v1"), "blockers") {
		t.Error("discovery shows the subresource")
	}
}

// TestWebhooks looks at objects while a webhook that is called for their changes fails.
func TestWebhooks(t *testing.T) {
	s, _ := start(t)
	s.Create(shop+"/configmaps", `{"metadata":{"name":"a"}}`)
	h := apitest.NewWebhooks(t)
	configuration := h.Configure(s.Client, "ValidatingWebhookConfiguration", "guard", "/guard", "")
	deletes := func() http.Header { return s.Send("DELETE", shop+"/configmaps/a", "").Header }
	expect(t, read(t, s.Client, shop+"/configmaps/a"), nil) // the webhook was not called yet
	deletes()
	webhook := []blockers.Type{blockers.Webhook}
	check := func(path, message string) {
		t.Helper()
		b := read(t, s.Client, path)
		if len(b.Items) == 0 || !strings.Contains(describe(&b.Items[0]), message) {
			t.Errorf("%+v\nwant %s", b.Items, message)
		}
	}
	const fails = "owner the webhook of validatingwebhookconfigurations/guard | 1 | guard | " +
		"It fails and is called for deletions of the object, updates of the object; the writes are refused. The last error: failed to call webhook"
	check(shop+"/configmaps/a", fails)
	expect(t, read(t, s.Client, shop), webhook)

	// The time since which the webhook fails stays the same after an unrelated change of its configuration.
	s.Patch(configuration, `{"metadata":{"labels":{"a":"b"}}}`)
	since := read(t, s.Client, shop+"/configmaps/a").Items[0].Since
	deletes()
	if again := read(t, s.Client, shop+"/configmaps/a").Items[0].Since; !again.Equal(since) || since.IsZero() {
		t.Errorf("it fails since %v, before that since %v", again, since)
	}
	h.On("/guard", apitest.Allow)
	s.Patch(shop+"/configmaps/a", `{"data":{"a":"b"}}`)
	expect(t, read(t, s.Client, shop+"/configmaps/a"), nil)
	s.Do("DELETE", configuration, "")

	h.Configure(s.Client, "MutatingWebhookConfiguration", "soft", "/soft", `,"failurePolicy":"Ignore"`)
	s.Patch(shop+"/configmaps/a", `{"data":{"a":"c"}}`)
	check(shop+"/configmaps/a", "the writes wait for it and then go on. The last error: ")
	s.Do("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/soft", "")
	wait.Seen(t, "the removed webhook to be forgotten", func() (bool, string) {
		items := read(t, s.Client, shop+"/configmaps/a").Items
		return len(items) == 0, fmt.Sprint(items)
	})
}

// TestNamespaceWithoutServers deletes a namespace while an extension API server and a webhook do not answer.
func TestNamespaceWithoutServers(t *testing.T) {
	s, _ := start(t, "namespace-controller")
	h := apitest.NewWebhooks(t)
	s.Create(apiServices, unavailable)
	s.Create(shop+"/configmaps", `{"metadata":{"name":"a"}}`)
	h.Configure(s.Client, "ValidatingWebhookConfiguration", "guard", "/guard", "")
	s.Do("DELETE", shop, "")
	wait.Seen(t, "failures of the server and of the webhook to be seen", func() (bool, string) {
		b := read(t, s.Client, shop)
		var text []string
		for i := range b.Items {
			text = append(text, describe(&b.Items[i]))
		}
		all := strings.Join(text, "\n")
		return strings.Contains(all, "APIService | v1.hidden-group.example.com | since") && strings.Contains(all, "called for deletions of objects of configmaps") &&
			strings.Contains(all, "NamespaceContent | configmaps | 1 | shop/a | "), all
	})
}

// TestAccess checks that an answer names other objects only if the user may list them.
func TestAccess(t *testing.T) {
	s, _ := start(t)
	s.Create(shop+"/configmaps", `{"metadata":{"name":"owner","finalizers":["example.com/x"]}}`)
	uid := s.Metadata(shop + "/configmaps/owner").UID
	s.Create(shop+"/secrets", fmt.Sprintf(`{"metadata":{"name":"hidden-secret","finalizers":["example.com/hidden-finalizer"],
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"blockOwnerDeletion":true}]}}`, uid))
	s.Create(shop+"/persistentvolumeclaims", `{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],
		"resources":{"requests":{"storage":"1Gi"}}}}`)
	s.Create(shop+"/pods", `{"metadata":{"name":"hidden-pod"},"spec":{"nodeName":"hidden-node","containers":[{"name":"c","image":"i"}],
		"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data"}}]}}`)
	s.Create("/api/v1/persistentvolumes", `{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},
		"hostPath":{"path":"/x"},"claimRef":{"namespace":"shop","name":"hidden-claim"}}}`)
	s.Patch("/api/v1/persistentvolumes/v/status", `{"status":{"phase":"Bound"}}`)
	s.Create(apiServices, unavailable)
	h := apitest.NewWebhooks(t)
	s.Do("DELETE", shop+"/configmaps/owner", foreground)
	h.Configure(s.Client, "ValidatingWebhookConfiguration", "hidden-webhook", "/none", "")
	s.Send("PATCH", shop+"/configmaps/owner", `{"data":{"a":"b"}}`)
	for _, path := range []string{shop + "/persistentvolumeclaims/data", "/api/v1/persistentvolumes/v", shop} {
		s.Do("DELETE", path, "")
	}
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"viewer"},"rules":[{"apiGroups":[""],"resources":["*/blockers"],"verbs":["get"]}]}`)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"viewer"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"viewer"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"viewer"}]}`)
	viewer := s.As("viewer")
	viewer.Served(shop + "/blockers")
	wait.Seen(t, "the APIService to be unavailable", func() (bool, string) {
		body := s.Get(shop + "/blockers")
		return strings.Contains(body, "hidden-group"), body
	})
	all := ""
	for path, wants := range map[string][]string{
		shop + "/configmaps/owner": {
			"Dependent | secrets | 1 | The garbage collector first deletes 1 object of secrets with blockOwnerDeletion; you may not list them.",
			"Webhook | webhooks | 1 | Such writes call failing webhooks: 1. You may not list their configurations.",
		},
		shop + "/persistentvolumeclaims/data": {"Dependent | pods | 1 | The claim is used on nodes by 1 object of pods; you may not list them."},
		"/api/v1/persistentvolumes/v":         {"Dependent | persistentvolumeclaims | 1 | The volume is bound to 1 object of persistentvolumeclaims; you may not list them."},
		shop: {
			"NamespaceContent | secrets | 1 | Left: 1 object of secrets, 1 of them with finalizers; you may not list them.",
			"NamespaceContent | pods | 1 | Left: 1 object of pods, 0 of them with finalizers; you may not list them.",
			"APIService | apiservices | 1 | Not available: 1 object of apiservices.apiregistration.k8s.io; you may not list them.",
		},
	} {
		body := viewer.Get(path + "/blockers")
		all += body
		b := parse(t, body)
		for _, want := range wants {
			if !slices.ContainsFunc(b.Items, func(i blockers.Blocker) bool { return describe(&i) == want }) {
				t.Errorf("%s lacks %s:\n%s", path, want, body)
			}
		}
		if b.Deletion != nil || b.LastChange != nil && b.LastChange.User != "" {
			t.Errorf("%s shows the history: %s", path, body)
		}
		for _, i := range b.Items {
			if i.Change != nil && i.Change.User != "" {
				t.Errorf("%s shows the history: %s", path, body)
			}
		}
	}
	if strings.Contains(all, "hidden") || strings.Contains(all, "kubernetes-admin") {
		t.Errorf("names leak: %s", all)
	}
	seen := s.Get(shop+"/blockers") + s.Get(shop+"/configmaps/owner/blockers") + s.Get("/api/v1/persistentvolumes/v/blockers") + s.Get(shop+"/persistentvolumeclaims/data/blockers")
	for _, name := range []string{"hidden-secret", "hidden-finalizer", "hidden-pod", "hidden-claim", "hidden-group", "hidden-webhook", "kubernetes-admin"} {
		if !strings.Contains(seen, name) {
			t.Errorf("an administrator does not see %s", name)
		}
	}
	s.As("nobody").Run([]apitest.Step{{"GET", shop + "/configmaps/owner/blockers", "", 403, `configmaps/blockers`}})
}

// TestDefinition deletes a definition whose object has a finalizer. It also reads the blockers of the object in
// version v2, to which the object cannot be converted.
func TestDefinition(t *testing.T) {
	s, _ := start(t)
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const schema = `"served":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
	s.Create(definitions, `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"widgets","singular":"widget","kind":"Widget"},
		"versions":[{"name":"v1","storage":true,`+schema+`},{"name":"v2","storage":false,`+schema+`}],
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}}}`)
	s.Served("/apis/example.com/v1/widgets")
	s.Create(widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["example.com/x"]}}`)
	s.Do("DELETE", definitions+"/widgets.example.com", "")
	s.Do("DELETE", widgets+"/a", "")
	b := read(t, s.Client, definitions+"/widgets.example.com")
	expect(t, b, []blockers.Type{blockers.Dependent}, "Dependent | widgets.example.com | 1 | shop/a deleting example.com/x (the field manager Go-http-client)"+
		" | Left: 1 object of widgets.example.com, 1 of them with finalizers.")
	b = read(t, s.Client, strings.Replace(widgets, "v1", "v2", 1)+"/a")
	if len(b.Items) != 2 || b.Items[0].Type != blockers.Webhook || b.Items[1].Name != "example.com/x" ||
		!strings.Contains(describe(&b.Items[0]), "The object cannot be converted to the version v2: ") {
		t.Errorf("%+v", b.Items)
	}
}

// TestOrphans deletes an owner with the propagation policy Orphan while no garbage collector runs.
func TestOrphans(t *testing.T) {
	s, _ := start(t)
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"owner"}}`)
	s.Create(shop+"/secrets", fmt.Sprintf(`{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",
		"name":"owner","uid":%q}]}}`, s.Metadata("/apis/rbac.authorization.k8s.io/v1/clusterroles/owner").UID))
	s.Do("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/owner", `{"propagationPolicy":"Orphan"}`)
	expect(t, read(t, s.Client, "/apis/rbac.authorization.k8s.io/v1/clusterroles/owner"), []blockers.Type{blockers.Dependent},
		"Dependent | secrets | 1 | shop/a | The garbage collector first removes the reference from 1 object of secrets.")
}
