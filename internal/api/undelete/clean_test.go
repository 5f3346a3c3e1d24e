package undelete

import (
	"reflect"
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	for name, c := range map[string]struct {
		r         *resource
		was, want string
		notes     string
	}{
		"a ConfigMap": {kindOf("v1", "ConfigMap"),
			`{metadata: {name: a, uid: u, resourceVersion: "1", creationTimestamp: x, managedFields: [], generation: 2, selfLink: s,
			deletionTimestamp: "2026-11-01T12:00:00Z", deletionGracePeriodSeconds: 1, labels: {l: m},
			finalizers: [foregroundDeletion, kubernetes.io/pvc-protection, example.com/own]}, data: {v: "1"}}`,
			`{metadata: {name: a, labels: {l: m},
			annotations: {history.keelson.dev/undeleted-uid: u}}, data: {v: "1"}}`,
			"without its finalizers example.com/own"},
		"a custom resource": {kindOf("example.com/v1", "Pod"),
			`{metadata: {name: a, uid: u}, spec: {nodeName: n}, status: {s: 1}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}},
			spec: {nodeName: n}}`, ""},
		"a Pod": {kindOf("v1", "Pod"),
			`{metadata: {name: a, uid: u}, spec: {nodeName: n, ephemeralContainers: [], containers: []}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}}, spec: {containers: []}}`, ""},
		"a Namespace": {kindOf("v1", "Namespace"), `{metadata: {name: a, uid: u}, spec: {finalizers: [kubernetes]}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}}, spec: {}}`, ""},
		"a Job": {kindOf("batch/v1", "Job"),
			`{metadata: {name: a, uid: u, labels: {job-name: a, mine: x}}, spec: {selector: {}, template: {metadata: {labels: {controller-uid: u, mine: x}}}}}`,
			`{metadata: {name: a, labels: {mine: x}, annotations: {history.keelson.dev/undeleted-uid: u}},
			spec: {template: {metadata: {labels: {mine: x}}}}}`, ""},
		"a Job with a selector of its user": {kindOf("batch/v1", "Job"),
			`{metadata: {name: a, uid: u}, spec: {manualSelector: true, selector: {}}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}},
			spec: {manualSelector: true, selector: {}}}`, ""},
		"a claim": {kindOf("v1", "PersistentVolumeClaim"),
			`{metadata: {name: a, uid: u, annotations: {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: node-1, mine: x}}, spec: {volumeName: v}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u, mine: x}}, spec: {volumeName: v}}`, ""},
		"a token": {kindOf("v1", "Secret"),
			`{metadata: {name: a, uid: u, annotations: {kubernetes.io/service-account.uid: x, kubernetes.io/service-account.name: s}},
			type: kubernetes.io/service-account-token, data: {token: eA==}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u,
			kubernetes.io/service-account.name: s}}, type: kubernetes.io/service-account-token}`,
			"without its token, which was for a ServiceAccount of another UID"},
		"a volume": {kindOf("v1", "PersistentVolume"),
			`{metadata: {name: a, uid: u}, spec: {claimRef: {name: c, namespace: n, uid: x, resourceVersion: "1"}}}`,
			`{metadata: {name: a, annotations: {history.keelson.dev/undeleted-uid: u}}, spec: {claimRef: {name: c, namespace: n}}}`, ""},
	} {
		was := parse(t, c.was)
		before := was.DeepCopy()
		got, notes := cleaned(c.r, was)
		if !reflect.DeepEqual(got.Object, parse(t, c.want).Object) || strings.Join(notes, "; ") != c.notes {
			t.Errorf("%s: %v %q\nwant %v", name, got.Object, notes, parse(t, c.want).Object)
		}
		if !reflect.DeepEqual(was, before) {
			t.Errorf("%s: the object is changed", name)
		}
	}
}

func TestAlternatives(t *testing.T) {
	for service, want := range map[string][]string{
		`{spec: {clusterIP: None}}`: nil,
		`{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`: {
			`{spec: {ports: [{port: 80}]}}`},
		`{spec: {clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30000}], healthCheckNodePort: 1}}`: {
			`{spec: {ports: [{port: 80, nodePort: 30000}], healthCheckNodePort: 1}}`,
			`{spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}}`, `{spec: {ports: [{port: 80}]}}`},
	} {
		got := alternatives(kindOf("v1", "Service"), parse(t, service))
		if len(got) != len(want) {
			t.Errorf("%s has %d alternatives, want %d", service, len(got), len(want))
			continue
		}
		for i := range want {
			if !reflect.DeepEqual(got[i].Object, parse(t, want[i]).Object) {
				t.Errorf("%s, alternative %d: %v, want %s", service, i, got[i].Object, want[i])
			}
		}
	}
	if got := alternatives(kindOf("v1", "Pod"), parse(t, `{spec: {clusterIP: 1}}`)); len(got) != 0 {
		t.Errorf("a Pod has %d alternatives", len(got))
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
		o := parse(t, claim)
		note, err := keepVolume(o, func(string) (*claimRef, error) {
			if c.volume == "" {
				return nil, nil
			}
			return claimOf(parse(t, c.volume)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, kept := o.Object["spec"].(map[string]any)["volumeName"]
		if kept != c.kept || note == "" != (c.note == "") || !strings.Contains(note, c.note) {
			t.Errorf("%s: kept %v, %q", name, kept, note)
		}
	}
}

func TestReverted(t *testing.T) {
	for name, c := range map[string]struct {
		r               *resource
		now, then, want string
	}{
		"a ConfigMap": {kindOf("v1", "ConfigMap"),
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u, resourceVersion: "9", labels: {new: x}, finalizers: [f],
			annotations: {history.keelson.dev/undeleted-uid: o, new: x}}, data: {v: "2"}, binaryData: {}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: o, resourceVersion: "1", labels: {old: x}}, data: {v: "1"}, immutable: false}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u, resourceVersion: "9", labels: {old: x}, finalizers: [f],
			annotations: {history.keelson.dev/undeleted-uid: o}}, data: {v: "1"}, immutable: false}`},
		"a Service": {kindOf("v1", "Service"),
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "2", clusterIPs: ["2"], a: 2}, status: {s: 2}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "1", clusterIPs: ["1"], a: 1}, status: {s: 1}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "2", clusterIPs: ["2"], a: 1}, status: {s: 2}}`},
		"a claim that is not bound": {kindOf("v1", "PersistentVolumeClaim"),
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {volumeName: v}, status: {s: 1}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {}}`},
		"a custom resource": {kindOf("example.com/v1", "Service"),
			`{apiVersion: example.com/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "2"}}`,
			`{apiVersion: example.com/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "1"}}`,
			`{apiVersion: example.com/v1, kind: Service, metadata: {name: a}, spec: {clusterIP: "1"}}`},
	} {
		now, then := parse(t, c.now), parse(t, c.then)
		nowBefore, thenBefore := now.DeepCopy(), then.DeepCopy()
		if got := reverted(c.r, now, then); !reflect.DeepEqual(got.Object, parse(t, c.want).Object) {
			t.Errorf("%s: %v\nwant %s", name, got.Object, c.want)
		}
		if !reflect.DeepEqual(now, nowBefore) || !reflect.DeepEqual(then, thenBefore) {
			t.Errorf("%s: an object is changed", name)
		}
	}
}
