package kubectlhistory

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func resourceOf(group, version, kind string) resource {
	return resource{Group: group, Version: version, Kind: kind}
}

func TestClean(t *testing.T) {
	for name, c := range map[string]struct {
		r         resource
		was, want string
		notes     string
	}{
		"a ConfigMap": {resourceOf("", "v1", "ConfigMap"),
			`{metadata: {name: a, uid: u, resourceVersion: "1", creationTimestamp: x, managedFields: [], generation: 2, selfLink: s,
			deletionTimestamp: "2026-11-01T12:00:00Z", deletionGracePeriodSeconds: 1, labels: {l: m},
			finalizers: [foregroundDeletion, kubernetes.io/pvc-protection, example.com/own]}, data: {v: "1"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {l: m},
			annotations: {history.keelson.dev/undeleted-uid: u}}, data: {v: "1"}}`,
			"without its finalizers example.com/own"},
		"a custom resource": {resourceOf("example.com", "v1", "Pod"),
			`{metadata: {name: a, uid: u}, spec: {nodeName: n}, status: {s: 1}}`,
			`{apiVersion: example.com/v1, kind: Pod, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}},
			spec: {nodeName: n}}`, ""},
		"a Pod": {resourceOf("", "v1", "Pod"),
			`{metadata: {name: a, uid: u}, spec: {nodeName: n, ephemeralContainers: [], containers: []}}`,
			`{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}}, spec: {containers: []}}`, ""},
		"a Namespace": {resourceOf("", "v1", "Namespace"), `{metadata: {name: a, uid: u}, spec: {finalizers: [kubernetes]}}`,
			`{apiVersion: v1, kind: Namespace, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}}, spec: {}}`, ""},
		"a Job": {resourceOf("batch", "v1", "Job"),
			`{metadata: {name: a, uid: u, labels: {job-name: a, mine: x}}, spec: {selector: {}, template: {metadata: {labels: {controller-uid: u, mine: x}}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {mine: x}, annotations: {history.keelson.dev/undeleted-uid: u}},
			spec: {template: {metadata: {labels: {mine: x}}}}}`, ""},
		"a Job with a selector of its user": {resourceOf("batch", "v1", "Job"),
			`{metadata: {name: a, uid: u}, spec: {manualSelector: true, selector: {}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}},
			spec: {manualSelector: true, selector: {}}}`, ""},
		"a claim": {resourceOf("", "v1", "PersistentVolumeClaim"),
			`{metadata: {name: a, uid: u, annotations: {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: node-1, mine: x}}, spec: {volumeName: v}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u, mine: x}}, spec: {volumeName: v}}`, ""},
		"a token": {resourceOf("", "v1", "Secret"),
			`{metadata: {name: a, uid: u, annotations: {kubernetes.io/service-account.uid: x, kubernetes.io/service-account.name: s}},
			type: kubernetes.io/service-account-token, data: {token: eA==}}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u,
			kubernetes.io/service-account.name: s}}, type: kubernetes.io/service-account-token}`,
			"without its token, which was for a ServiceAccount of another UID"},
		"a volume": {resourceOf("", "v1", "PersistentVolume"),
			`{metadata: {name: a, uid: u}, spec: {claimRef: {name: c, namespace: n, uid: x, resourceVersion: "1"}}}`,
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}}, spec: {claimRef: {name: c, namespace: n}}}`, ""},
	} {
		was := parse(t, c.was)
		before := was.DeepCopy()
		got, notes := clean(c.r, was)
		if !reflect.DeepEqual(got.Object, parse(t, c.want).Object) || strings.Join(notes, "; ") != c.notes {
			t.Errorf("%s: %v %q\nwant %v", name, got.Object, notes, parse(t, c.want).Object)
		}
		if !reflect.DeepEqual(was, before) {
			t.Errorf("%s: the object is changed", name)
		}
	}
}

func TestVariants(t *testing.T) {
	for service, want := range map[string][]string{
		`{spec: {clusterIP: None}}`: {`{spec: {clusterIP: None}}`},
		`{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`: {
			`{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`, `{spec: {ports: [{port: 80}]}}`},
		`{spec: {clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30000}], healthCheckNodePort: 1}}`: {
			`{spec: {clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30000}], healthCheckNodePort: 1}}`,
			`{spec: {ports: [{port: 80, nodePort: 30000}], healthCheckNodePort: 1}}`,
			`{spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}}`, `{spec: {ports: [{port: 80}]}}`},
	} {
		got := variants(resourceOf("", "v1", "Service"), parse(t, service))
		if len(got) != len(want) {
			t.Errorf("%s has %d variants, want %d", service, len(got), len(want))
			continue
		}
		for i := range want {
			if !reflect.DeepEqual(got[i].object.Object, parse(t, want[i]).Object) {
				t.Errorf("%s, variant %d: %v, want %s", service, i, got[i].object.Object, want[i])
			}
		}
	}
	if got := variants(resourceOf("", "v1", "Pod"), parse(t, `{spec: {clusterIP: 1}}`)); len(got) != 1 {
		t.Errorf("a Pod has %d variants", len(got))
	}
}

func TestKeepVolume(t *testing.T) {
	const claim = `{metadata: {namespace: shop, name: c}, spec: {volumeName: v}}`
	for name, c := range map[string]struct {
		volume string
		kept   bool
		note   string
	}{
		"gone":             {"", false, "the data does not come back"},
		"free":             {"{spec: {}}", true, ""},
		"of this claim":    {"{spec: {claimRef: {namespace: shop, name: c, uid: x}}}", true, "after its spec.claimRef.uid is removed"},
		"of another claim": {"{spec: {claimRef: {namespace: shop, name: d}}}", false, "used by another claim"},
	} {
		o, volume := parse(t, claim), (*unstructured.Unstructured)(nil)
		if c.volume != "" {
			volume = parse(t, c.volume)
		}
		note := keepVolume(o, volume)
		_, kept := o.Object["spec"].(map[string]any)["volumeName"]
		if kept != c.kept || note == "" != (c.note == "") || !strings.Contains(note, c.note) {
			t.Errorf("%s: kept %v, %q", name, kept, note)
		}
	}
}

func TestRevertedTo(t *testing.T) {
	for name, c := range map[string]struct {
		r               resource
		now, then, want string
	}{
		"a ConfigMap": {resourceOf("", "v1", "ConfigMap"),
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u, resourceVersion: "9", labels: {new: x}, finalizers: [f],
			annotations: {history.keelson.dev/undeleted-uid: o, new: x}}, data: {v: "2"}, binaryData: {}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: o, resourceVersion: "1", labels: {old: x}}, data: {v: "1"}, immutable: false}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u, resourceVersion: "9", labels: {old: x}, finalizers: [f],
			annotations: {history.keelson.dev/undeleted-uid: o}}, data: {v: "1"}, immutable: false}`},
		"a Service": {resourceOf("", "v1", "Service"),
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "2", clusterIPs: ["2"], a: 2}, status: {s: 2}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "1", clusterIPs: ["1"], a: 1}, status: {s: 1}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "2", clusterIPs: ["2"], a: 1}, status: {s: 2}}`},
		"a claim that is not bound": {resourceOf("", "v1", "PersistentVolumeClaim"),
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {volumeName: v}, status: {s: 1}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {}}`},
		"a custom resource": {resourceOf("example.com", "v1", "Service"),
			`{apiVersion: example.com/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "2"}}`,
			`{apiVersion: example.com/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "1"}}`,
			`{apiVersion: example.com/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "1"}}`},
	} {
		now, then := parse(t, c.now), parse(t, c.then)
		nowBefore, thenBefore := now.DeepCopy(), then.DeepCopy()
		if got := revertedTo(c.r, now, then); !reflect.DeepEqual(got.Object, parse(t, c.want).Object) {
			t.Errorf("%s: %v\nwant %s", name, got.Object, c.want)
		}
		if !reflect.DeepEqual(now, nowBefore) || !reflect.DeepEqual(then, thenBefore) {
			t.Errorf("%s: an object is changed", name)
		}
	}
}
