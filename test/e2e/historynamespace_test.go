package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// undeletedUID is the annotation of an object that came back.
const undeletedUID = "history.keelson.dev/undeleted-uid"

// madeKind are objects of one kind that the test creates: count objects of a template in which %d is the number of the object.
type madeKind struct {
	resource schema.GroupVersionResource
	count    int
	template string
}

const podTemplate = `{"metadata":{"labels":{"app":"a%[1]d"}},"spec":{"containers":[{"name":"c","image":"registry.example.com/i:%[1]d"}]}}`

// madeKinds are 1,000 objects of 23 kinds, in an order in which they can be created.
func madeKinds() []madeKind {
	core := func(r string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: r}
	}
	in := func(group, version, r string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: r}
	}
	selected := `"selector":{"matchLabels":{"app":"a%[1]d"}},"template":` + podTemplate
	return []madeKind{
		{core("serviceaccounts"), 40, `{"metadata":{"name":"sa-%[1]d"},"imagePullSecrets":[{"name":"pull-%[1]d"}]}`},
		{core("configmaps"), 160, `{"metadata":{"name":"cm-%[1]d","labels":{"n":"%[1]d"}},"data":{"key":"value %[1]d"},"binaryData":{"b":"AAEC"}}`},
		{core("secrets"), 120, `{"metadata":{"name":"secret-%[1]d"},"type":"Opaque","data":{"password":"AAEC"}}`},
		{core("limitranges"), 3, `{"metadata":{"name":"range-%[1]d"},"spec":{"limits":[{"type":"Container","default":{"cpu":"100m"},"defaultRequest":{"cpu":"50m"}}]}}`},
		{core("resourcequotas"), 2, `{"metadata":{"name":"quota-%[1]d"},"spec":{"hard":{"configmaps":"1000","pods":"1000","count/widgets.e2e.example.com":"1000"}}}`},
		{in("rbac.authorization.k8s.io", "v1", "roles"), 40, `{"metadata":{"name":"role-%[1]d"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`},
		{in("rbac.authorization.k8s.io", "v1", "rolebindings"), 40, `{"metadata":{"name":"binding-%[1]d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"role-%[1]d"},
			"subjects":[{"kind":"ServiceAccount","name":"sa-%[1]d","namespace":"shop"}]}`},
		{in("e2e.example.com", "v1", "gadgets"), 35, `{"apiVersion":"e2e.example.com/v1","kind":"Gadget","metadata":{"name":"gadget-%[1]d"},"spec":{"size":%[1]d}}`},
		{in("e2e.example.com", "v1", "widgets"), 120, `{"apiVersion":"e2e.example.com/v1","kind":"Widget","metadata":{"name":"widget-%[1]d"},
			"spec":{"size":%[1]d,"colour":"blue","parts":[{"name":"a","weight":0.5},{"name":"b"}]}}`},
		{core("services"), 60, `{"metadata":{"name":"svc-%[1]d"},"spec":{"selector":{"app":"a%[1]d"},"ports":[{"name":"http","port":80,"targetPort":8080}]}}`},
		{core("services"), 5, `{"metadata":{"name":"manual-%[1]d"},"spec":{"ports":[{"port":80}]}}`},
		{core("endpoints"), 5, `{"metadata":{"name":"manual-%[1]d"},"subsets":[{"addresses":[{"ip":"192.0.2.7"}],"ports":[{"port":80}]}]}`},
		{in("discovery.k8s.io", "v1", "endpointslices"), 10, `{"metadata":{"name":"slice-%[1]d","labels":{"kubernetes.io/service-name":"svc-%[1]d"}},"addressType":"IPv4",
			"endpoints":[{"addresses":["192.0.2.%[1]d"]}],"ports":[{"name":"http","port":80}]}`},
		{core("persistentvolumeclaims"), 25, `{"metadata":{"name":"claim-%[1]d"},"spec":{"storageClassName":"none","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
		{in("apps", "v1", "deployments"), 60, `{"metadata":{"name":"deploy-%[1]d"},"spec":{"replicas":1,` + selected + `}}`},
		{in("apps", "v1", "statefulsets"), 20, `{"metadata":{"name":"set-%[1]d"},"spec":{"serviceName":"svc-%[1]d","replicas":1,` + selected + `}}`},
		{in("apps", "v1", "daemonsets"), 15, `{"metadata":{"name":"daemon-%[1]d"},"spec":{` + selected + `}}`},
		{in("apps", "v1", "replicasets"), 15, `{"metadata":{"name":"rs-%[1]d"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"a%[1]d","of":"rs"}},
			"template":{"metadata":{"labels":{"app":"a%[1]d","of":"rs"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
		{in("batch", "v1", "jobs"), 30, `{"metadata":{"name":"job-%[1]d"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		{in("batch", "v1", "cronjobs"), 20, `{"metadata":{"name":"cron-%[1]d"},"spec":{"schedule":"%[1]d 4 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",
			"containers":[{"name":"c","image":"i"}]}}}}}}`},
		{core("pods"), 10, `{"metadata":{"name":"pod-%[1]d"},"spec":{"nodeSelector":{"is":"nowhere"},"containers":[{"name":"c","image":"i"}]}}`},
		{in("networking.k8s.io", "v1", "ingresses"), 50, `{"metadata":{"name":"ingress-%[1]d"},"spec":{"rules":[{"host":"h%[1]d.example.com","http":{"paths":[{"path":"/","pathType":"Prefix",
			"backend":{"service":{"name":"svc-%[1]d","port":{"number":80}}}}]}}]}}`},
		{in("networking.k8s.io", "v1", "networkpolicies"), 55, `{"metadata":{"name":"policy-%[1]d"},"spec":{"podSelector":{"matchLabels":{"app":"a%[1]d"}},"ingress":[{}]}}`},
		{in("policy", "v1", "poddisruptionbudgets"), 40, `{"metadata":{"name":"budget-%[1]d"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"a%[1]d"}}}}`},
		{in("autoscaling", "v2", "horizontalpodautoscalers"), 20, `{"metadata":{"name":"scaler-%[1]d"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"deploy-%[1]d"},
			"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}`},
	}
}

const historyDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.e2e.example.com"},
	"spec":{"group":"e2e.example.com","scope":"Namespaced","names":{"plural":"%[1]s","singular":"%[2]s","kind":"%[3]s"},
	"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
	"spec":{"type":"object","properties":{"size":{"type":"integer"},"colour":{"type":"string"},
	"parts":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"weight":{"type":"number"}}}}}},
	"status":{"type":"object","properties":{"ready":{"type":"boolean"}}}}}}}]}}`

// past is a namespace of the test.
type past struct {
	t         *testing.T
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	cluster   *cluster
	kubectl   kubectl
}

const shop = "shop"

// objectKey names an object in the namespace.
type objectKey struct {
	resource schema.GroupVersionResource
	name     string
}

func (k objectKey) String() string { return k.resource.Resource + "/" + k.name }

func (p *past) in(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return p.client.Resource(r).Namespace(shop)
}

// decoded returns an object of JSON.
func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// create creates the objects of a kind, eight at a time.
func (p *past) create(k madeKind, change func(i int, o *unstructured.Unstructured)) {
	p.t.Helper()
	var workers sync.WaitGroup
	numbers := make(chan int)
	for range 8 {
		workers.Go(func() {
			for i := range numbers {
				text := k.template
				if strings.Contains(text, "%[1]d") {
					text = fmt.Sprintf(text, i)
				}
				o := &unstructured.Unstructured{}
				if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
					p.t.Errorf("%s: %v", k.resource.Resource, err)
					continue
				}
				change(i, o)
				if _, err := p.in(k.resource).Create(p.t.Context(), o, metav1.CreateOptions{}); err != nil {
					p.t.Errorf("%s %d: %v", k.resource.Resource, i, err)
				}
			}
		})
	}
	for i := range k.count {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
}

// objects returns all objects in the namespace but Events.
func (p *past) objects(ctx context.Context) (map[objectKey]*unstructured.Unstructured, error) {
	lists, err := p.discovery.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	out := map[objectKey]*unstructured.Unstructured{}
	for _, l := range lists {
		version, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for i := range l.APIResources {
			r := l.APIResources[i]
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "create") || r.Name == "events" {
				continue
			}
			resource := version.WithResource(r.Name)
			list, err := p.in(resource).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", resource, err)
			}
			for j := range list.Items {
				out[objectKey{resource, list.Items[j].GetName()}] = &list.Items[j]
			}
		}
	}
	return out, nil
}

// controllerMade reports whether docs/history.md says that an object does not come back with its namespace.
func controllerMade(o *unstructured.Unstructured) bool {
	kind, name := o.GetKind(), o.GetName()
	if owner := metav1.GetControllerOf(o); owner != nil {
		switch owner.Kind + "/" + kind {
		case "Deployment/ReplicaSet", "ReplicaSet/Pod", "Job/Pod", "StatefulSet/Pod", "DaemonSet/Pod", "StatefulSet/ControllerRevision",
			"DaemonSet/ControllerRevision", "Service/EndpointSlice", "Endpoints/EndpointSlice":
			return true
		}
	}
	token, _, _ := unstructured.NestedString(o.Object, "type")
	_, triggered := o.GetAnnotations()["endpoints.kubernetes.io/last-change-trigger-time"]
	_, managed := o.GetLabels()["endpoints.kubernetes.io/managed-by"]
	return kind == "ConfigMap" && name == "kube-root-ca.crt" || kind == "ServiceAccount" && name == "default" ||
		kind == "Secret" && token == "kubernetes.io/service-account-token" || kind == "Endpoints" && (triggered || managed)
}

// settled returns an error until the controllers have done their work: generations are observed, and there are as many objects
// that controllers make as counts says, by the kind of the owner and their own.
func settled(objects map[objectKey]*unstructured.Unstructured, counts map[string]int) error {
	for key, o := range objects {
		if o.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%s is being deleted", key)
		}
		switch o.GetKind() {
		case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "PodDisruptionBudget":
			observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			if observed != o.GetGeneration() {
				return fmt.Errorf("%s has the generation %d, its controller observed %d", key, o.GetGeneration(), observed)
			}
		case "Job":
			if active, _, _ := unstructured.NestedInt64(o.Object, "status", "active"); active != 1 {
				return fmt.Errorf("%s has %d active pods", key, active)
			}
		case "ResourceQuota":
			maps := 0
			for other := range objects {
				if other.resource.Resource == "configmaps" {
					maps++
				}
			}
			if used, _, _ := unstructured.NestedString(o.Object, "status", "used", "configmaps"); used != strconv.Itoa(maps) {
				return fmt.Errorf("%s counts %s of %d configmaps", key, used, maps)
			}
		}
	}
	made := madeCounts(objects)
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		if made[kind] != counts[kind] {
			return fmt.Errorf("%d of %d %s", made[kind], counts[kind], kind)
		}
	}
	return nil
}

// madeCounts returns how many objects the controllers of owners have made, by the kind of the owner and their own.
func madeCounts(objects map[objectKey]*unstructured.Unstructured) map[string]int {
	out := map[string]int{}
	for _, o := range objects {
		if owner := metav1.GetControllerOf(o); owner != nil && controllerMade(o) {
			out[owner.Kind+"/"+o.GetKind()]++
		}
	}
	return out
}

// content returns what has to be the same in an object that came back: all but what docs/history.md excepts.
func content(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	delete(annotations, undeletedUID)
	switch o.GetKind() {
	case "Pod":
		unstructured.RemoveNestedField(o.Object, "spec", "nodeName")
	case "Job":
		unstructured.RemoveNestedField(o.Object, "spec", "selector")
		for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
			unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", label)
			delete(labels, label)
		}
	case "PersistentVolumeClaim":
		for _, a := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"} {
			delete(annotations, a)
		}
	}
	delete(o.Object, "metadata")
	delete(o.Object, "status")
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	o.Object["labels"], o.Object["annotations"] = labels, annotations
	return o.Object
}

// TestUndeleteNamespace deletes a namespace with 1,000 objects beside kube-controller-manager, brings it back, and compares.
func TestUndeleteNamespace(t *testing.T) {
	c := newCluster(t)
	c.startManager(t)
	config := rest.CopyConfig(c.admin.config)
	config.WarningHandler = rest.NoWarnings{} // that Endpoints are deprecated
	p := &past{
		t: t, client: dynamic.NewForConfigOrDie(config), discovery: c.admin.client().Discovery(), cluster: c,
		kubectl: c.kubectl(t, c.admin),
	}
	p.fill()
	before := p.await("the controllers have made what they make", map[string]int{
		"Deployment/ReplicaSet": 60, "ReplicaSet/Pod": 75, "StatefulSet/Pod": 20, "StatefulSet/ControllerRevision": 20, "DaemonSet/ControllerRevision": 15,
		"Job/Pod": 30, "Service/EndpointSlice": 60, "Endpoints/EndpointSlice": 5,
	})
	namespaceBefore := p.namespace()
	t.Logf("the namespace has %d objects", len(before))
	uids := map[types.UID]types.UID{} // of now, by the UID of then
	role := p.global("clusterroles", "stays")
	uids[role.GetUID()] = role.GetUID()

	p.delete()

	k := p.plugin()
	dry := k.try(t, "", "undelete", "namespace", shop)
	if dry.code != 0 || !strings.Contains(dry.err, " 0 refused. Nothing was changed") {
		t.Fatalf("without --yes: exit %d\n%s", dry.code, dry.err)
	}
	began := time.Now()
	report := k.try(t, "", "undelete", "namespace", shop, "--yes")
	took := time.Since(began)
	if report.code != 0 {
		t.Fatalf("exit %d\n%s%s", report.code, report.out, report.err)
	}

	counts := madeCounts(before)
	after := p.await("the controllers have made it again", counts)
	namespaceAfter := p.namespace()
	uids[namespaceBefore.GetUID()] = namespaceAfter.GetUID()
	if !equality.Semantic.DeepEqual(content(namespaceBefore), content(namespaceAfter)) {
		t.Errorf("the namespace was %v and is %v", content(namespaceBefore), content(namespaceAfter))
	}
	created, skipped := 1, 0 // the namespace
	for key, o := range before {
		if controllerMade(o) {
			skipped++
			continue
		}
		created++
		if now := after[key]; now != nil {
			uids[o.GetUID()] = now.GetUID()
			if a := now.GetAnnotations()[undeletedUID]; a != string(o.GetUID()) || now.GetUID() == o.GetUID() {
				t.Errorf("%s had the UID %s, and has the annotation %q and the UID %s", key, o.GetUID(), a, now.GetUID())
			}
		}
	}
	p.reported(report, created, skipped)
	t.Logf("%d objects came back in %v", created, took.Round(time.Millisecond))
	for key, o := range before {
		if !controllerMade(o) {
			p.compare(key, o, after[key], uids)
		}
	}

	// The garbage collector takes nothing away.
	time.Sleep(20 * time.Second)
	later := p.await("nothing has changed after 20 seconds", counts)
	for key, o := range after {
		if now := later[key]; now == nil || now.GetUID() != o.GetUID() {
			t.Errorf("%s went away after it had come back", key)
		}
	}
	p.volume()
}

// fill creates the namespace with its objects, some of which have owners and finalizers.
func (p *past) fill() {
	p.t.Helper()
	k := p.kubectl
	for _, names := range [][]any{{"widgets", "widget", "Widget"}, {"gadgets", "gadget", "Gadget"}} {
		k.runWith(p.t, fmt.Sprintf(historyDefinition, names...), "create", "-f", "-")
		k.run(p.t, "wait", "--for=condition=Established", fmt.Sprintf("crd/%s.e2e.example.com", names[0]))
	}
	k.run(p.t, words("create namespace shop")...)
	k.run(p.t, words("label namespace shop team=e2e pod-security.kubernetes.io/warn=baseline")...)
	k.run(p.t, words("create clusterrole stays --verb=get --resource=nodes")...)
	k.run(p.t, words("create clusterrole goes --verb=get --resource=nodes")...)
	k.runWith(p.t, `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"disk"},"spec":{"storageClassName":"none","capacity":{"storage":"1Gi"},
		"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","hostPath":{"path":"/nowhere"},"claimRef":{"namespace":"shop","name":"claim-0"}}}`,
		"create", "-f", "-")
	eventually(p.t, time.Minute, "the default service account is there", func(ctx context.Context) error {
		_, err := p.cluster.admin.client().CoreV1().ServiceAccounts(shop).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	namespace := p.namespace()
	uid := func(resource schema.GroupVersionResource, name string) types.UID {
		o, err := p.in(resource).Get(p.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			p.t.Error(err)
			return "x"
		}
		return o.GetUID()
	}
	own := func(o *unstructured.Unstructured, apiVersion, kind, name string, uid types.UID, controller bool) {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: &controller, BlockOwnerDeletion: &controller,
		}))
	}
	kinds := madeKinds()
	resources := map[string]schema.GroupVersionResource{}
	for _, made := range kinds {
		resources[made.resource.Resource] = made.resource
		p.create(made, func(i int, o *unstructured.Unstructured) {
			if made.resource.Resource == "configmaps" {
				o.Object["immutable"] = i == 1
			}
			if i%10 != 3 {
				return
			}
			switch made.resource.Resource {
			case "widgets": // of ConfigMaps; and with finalizers
				own(o, "v1", "ConfigMap", fmt.Sprint("cm-", i), uid(resources["configmaps"], fmt.Sprint("cm-", i)), true)
				if i == 3 || i == 13 {
					o.SetFinalizers([]string{"example.com/keep"})
				}
			case "deployments": // as an operator makes them
				own(o, "e2e.example.com/v1", "Widget", fmt.Sprint("widget-", i), uid(resources["widgets"], fmt.Sprint("widget-", i)), true)
			case "rolebindings":
				own(o, "v1", "Namespace", shop, namespace.GetUID(), false)
			case "networkpolicies": // two owners without a namespace, one of which goes away before
				own(o, "rbac.authorization.k8s.io/v1", "ClusterRole", "stays", p.global("clusterroles", "stays").GetUID(), false)
				own(o, "rbac.authorization.k8s.io/v1", "ClusterRole", "goes", p.global("clusterroles", "goes").GetUID(), false)
			}
		})
	}
	// Owners that sort after what they own, by name and by kind.
	for i := range 10 {
		owned, owner := fmt.Sprint("cm-", 20+i), fmt.Sprint("cm-", 30+i)
		p.patch(resources["configmaps"], owned, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"%s","uid":"%s"}]}}`,
			owner, uid(resources["configmaps"], owner)))
		owned, owner = fmt.Sprint("secret-", i), fmt.Sprint("deploy-", i)
		p.patch(resources["secrets"], owned, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"%s","uid":"%s"}]}}`,
			owner, uid(resources["deployments"], owner)))
		p.patch(resources["widgets"], fmt.Sprint("widget-", i), `{"status":{"ready":true}}`, "status")
	}
	for i := range 5 { // node ports
		p.patch(resources["services"], fmt.Sprint("svc-", i), `{"spec":{"type":"NodePort"}}`)
	}
	p.kubectl.runWith(p.t, `{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token",
		"metadata":{"name":"token","annotations":{"kubernetes.io/service-account.name":"sa-1"}}}`, "create", "-n", shop, "-f", "-")
	total := 0
	for _, made := range kinds {
		total += made.count
	}
	if total != 1000 || len(kinds) < 20 {
		p.t.Errorf("the test makes %d objects of %d kinds", total, len(kinds))
	}
}

func (p *past) patch(r schema.GroupVersionResource, name, patch string, subresource ...string) {
	p.t.Helper()
	if _, err := p.in(r).Patch(p.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...); err != nil {
		p.t.Error(err)
	}
}

func (p *past) namespace() *unstructured.Unstructured {
	p.t.Helper()
	o, err := p.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(p.t.Context(), shop, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return o
}

// global returns an object of rbac.authorization.k8s.io without a namespace.
func (p *past) global(resource, name string) *unstructured.Unstructured {
	r := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
	o, err := p.client.Resource(r).Get(p.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		p.t.Error(err)
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return o
}

// await waits until the controllers have settled, and returns the objects.
func (p *past) await(what string, counts map[string]int) (objects map[objectKey]*unstructured.Unstructured) {
	p.t.Helper()
	eventually(p.t, 3*time.Minute, what, func(ctx context.Context) (err error) {
		if objects, err = p.objects(ctx); err != nil {
			return err
		}
		return settled(objects, counts)
	})
	return objects
}

// delete deletes the namespace and waits until it is gone. Then it deletes an owner.
func (p *past) delete() {
	p.t.Helper()
	p.kubectl.run(p.t, words("delete namespace shop --wait=false")...)
	widgets := schema.GroupVersionResource{Group: "e2e.example.com", Version: "v1", Resource: "widgets"}
	for _, name := range []string{"widget-3", "widget-13"} {
		p.patch(widgets, name, `{"metadata":{"finalizers":null}}`)
	}
	p.kubectl.run(p.t, words("wait namespace shop --for=delete --timeout=120s")...)
	p.kubectl.run(p.t, words("delete clusterrole goes")...)
}

// plugin returns the history command of Keelson as it is run by kubectl.
func (p *past) plugin() kubectl { return historyPlugin(p.t, p.kubectl) }

// reported checks what the command printed.
func (p *past) reported(a answer, created, skipped int) {
	p.t.Helper()
	want := fmt.Sprintf("%d created, %d skipped, 0 refused.\n", created, skipped)
	if !strings.HasSuffix(a.err, want) {
		p.t.Errorf("the report ends with\n%s\nwant %s", a.err, want)
	}
	lines := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\S+/\S+ (created|skipped)`).FindAllStringSubmatch(a.out, -1) {
		lines[m[1]]++
	}
	if lines["created"] != created || lines["skipped"] != skipped {
		p.t.Errorf("the report has %d lines about objects that were created, want %d, and %d about those skipped, want %d", lines["created"], created, lines["skipped"], skipped)
	}
	for _, text := range []string{
		"namespace/shop created\n", "widget.e2e.example.com/widget-3 created (without its finalizers example.com/keep)\n",
		"networkpolicy.networking.k8s.io/policy-3 created (without its owner ClusterRole goes, which is gone)\n",
		"secret/token skipped: its token was for a ServiceAccount that had another UID; make a new one\n",
		"persistentvolumeclaim/claim-0 created (the volume disk is bound again after its spec.claimRef.uid is removed)\n",
		"replicaset.apps/rs-1 created\n",
	} {
		if !strings.Contains(a.out, text) {
			p.t.Errorf("the report has no line %q", text)
		}
	}
	if n := strings.Count(a.err, "Warning: v1 Endpoints is deprecated"); n != 1 {
		p.t.Errorf("the warning about Endpoints is there %d times", n)
	}
	if strings.Contains(a.out, "with another cluster IP") || strings.Contains(a.out, "other node ports") {
		p.t.Error("a Service did not keep its address or port")
	}
}

// compare checks that an object is as it was, with the owners of now.
func (p *past) compare(key objectKey, was, is *unstructured.Unstructured, uids map[types.UID]types.UID) {
	p.t.Helper()
	if is == nil {
		p.t.Errorf("%s did not come back", key)
		return
	}
	if then, now := content(was), content(is); !equality.Semantic.DeepEqual(then, now) {
		p.t.Errorf("%s differs:\n%s", key, differencesOf(then, now))
	}
	p.sameManagers(key, was, is)
	var owners []metav1.OwnerReference
	for _, owner := range was.GetOwnerReferences() {
		if owner.UID = uids[owner.UID]; owner.UID != "" {
			owners = append(owners, owner)
		}
	}
	if now := is.GetOwnerReferences(); !equality.Semantic.DeepEqual(owners, now) {
		p.t.Errorf("%s has the owners\n%v, want\n%v", key, now, owners)
	}
}

// sameManagers checks that the fields belong to whom they belonged. Controllers that have changed the object since may be added, and
// the command has no more than its annotation.
func (p *past) sameManagers(key objectKey, was, is *unstructured.Unstructured) {
	p.t.Helper()
	type manager struct {
		name, version string
		operation     metav1.ManagedFieldsOperationType
	}
	now := map[manager]bool{}
	for _, e := range is.GetManagedFields() {
		if e.Subresource == "" {
			now[manager{e.Manager, e.APIVersion, e.Operation}] = true
		}
		if e.Manager == "kubectl-history" && strings.Count(e.FieldsV1.GetRawString(), "f:") != 3 {
			p.t.Errorf("%s: the command manages %s", key, e.FieldsV1.GetRawString())
		}
	}
	for _, e := range was.GetManagedFields() {
		if e.Subresource == "" && !now[manager{e.Manager, e.APIVersion, e.Operation}] {
			p.t.Errorf("%s has no fields of %s any more, only of %v", key, e.Manager, now)
		}
	}
}

// differencesOf returns two values as JSON for a message.
func differencesOf(a, b any) string {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) + "\n" + string(y)
}

// volume carries out the step of docs/history.md by which a volume is bound again.
func (p *past) volume() {
	p.t.Helper()
	p.kubectl.run(p.t, "patch", "pv", "disk", "--type=json", "-p", `[{"op":"remove","path":"/spec/claimRef/uid"}]`)
	eventually(p.t, time.Minute, "the claim has its volume", func(context.Context) error {
		if phase := p.kubectl.jsonpath(p.t, "{.status.phase}", "pvc", "claim-0", "-n", shop); phase != "Bound" {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
}

// historyPlugin returns the command of Keelson about history, for the server and the user of a kubectl.
func historyPlugin(t *testing.T, k kubectl) kubectl {
	t.Helper()
	link := filepath.Join(t.TempDir(), "kubectl-history")
	linkTo(t, program(t, "keelson"), link)
	k.path = link
	return k
}
