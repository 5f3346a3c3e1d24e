package rest_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
)

var (
	otherServer = flag.String(
		"subresource-server", "", "run TestSubresourceWrites against this server, such as a kube-apiserver",
	)
	otherToken = flag.String("subresource-token", "", "the bearer token of an administrator of -subresource-server")
)

// ownMembers are the fields that belong to a subresource: it may change them, and the test does
// not set them. "[]" stands for every element of a list.
var ownMembers = map[string][]string{
	"status":                   {"status"},
	"scale":                    {"spec.replicas", "metadata.generation"},
	"approval":                 {"status.conditions"},
	"pods/ephemeralcontainers": {"spec.ephemeralContainers", "metadata.generation"},
	"pods/resize": {
		"spec.containers[].resizePolicy", "spec.initContainers[].resizePolicy", "spec.containers[].resources",
		"spec.initContainers[].resources", "metadata.generation", "spec.resources",
	},
	"namespaces/finalize":               {"spec.finalizers"},
	"certificatesigningrequests/status": {"status.certificate", "status.conditions"},
}

// alsoChanged has the fields outside of a subresource that a write of the subresource changes nevertheless, by
// group and resource. In kube-apiserver, the strategy of each kind decides this. A run of this test with
// -subresource-server against kube-apiserver 1.36.3 found the same fields, and one more: it lets the generateName
// of some subresources of a pod change. For a status that is not listed here, the fields are statusMetadata; for
// another subresource there are none.
var alsoChanged = map[string][]string{
	// Not the labels: they decide which objects belong to the Deployment.
	"apps/deployments/status": {
		"metadata.annotations", "metadata.finalizers", "metadata.generateName", "metadata.ownerReferences",
	},
	// Kubelets write this status, and they may not set owners.
	"/pods/status": {"metadata.annotations", "metadata.finalizers", "metadata.generateName", "metadata.labels"},
	// The strategies of these kinds restore all metadata that an ordinary update may change.
	"admissionregistration.k8s.io/validatingadmissionpolicies/status": {"metadata.generateName"},
	"apiregistration.k8s.io/apiservices/status":                       {"metadata.generateName"},
	"flowcontrol.apiserver.k8s.io/flowschemas/status":                 {"metadata.generateName"},
	"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations/status": {"metadata.generateName"},
	"resource.k8s.io/resourceclaims/status":                           {"metadata.generateName"},
	"storage.k8s.io/volumeattachments/status":                         {"metadata.generateName"},
	// An approver may change the metadata, as a signer may.
	"certificates.k8s.io/certificatesigningrequests/approval": statusMetadata,
	// A client that finalizes a namespace may too.
	"/namespaces/finalize": statusMetadata,
}

var statusMetadata = []string{
	"metadata.annotations", "metadata.finalizers", "metadata.generateName", "metadata.labels", "metadata.ownerReferences",
}

// A subresourceCase is a kind's subresource in one version of the kind.
type subresourceCase struct {
	kind    *registry.Kind
	version *registry.Version
	sub     *registry.Subresource
	path    string
	// tree means that the kind is a custom resource: it has no protobuf and no strategic merge patch.
	tree bool
}

func (c subresourceCase) name() string { return c.kind.Resource + "/" + c.sub.Name }

func (c subresourceCase) own() []string {
	if own := ownMembers[c.name()]; own != nil {
		return own
	}
	return ownMembers[c.sub.Name]
}

func (c subresourceCase) allowed() []string {
	if also, ok := alsoChanged[c.kind.Group+"/"+c.name()]; ok {
		return also
	}
	if c.sub.Name == "status" && !c.tree {
		return statusMetadata
	}
	return nil
}

// TestSubresourceWrites writes each subresource of each kind in each version, with every kind of write. The bodies
// set the fields that the subresource does not own, first all at once and then each by itself. Only the fields of
// the subresource and those in alsoChanged may change.
func TestSubresourceWrites(t *testing.T) {
	s := subresourceServer(t)
	creates := recordedCreates(t)
	for _, kind := range resource.Kinds(features.Gates{}) {
		for i := range kind.Versions {
			version := &kind.Versions[i]
			if version.Disabled {
				continue
			}
			for j := range kind.Subresources {
				sub := &kind.Subresources[j]
				if sub.Connect != nil || !slices.Contains(sub.Verbs, "update") {
					continue
				}
				group := kind.Group
				if version.Group != "" {
					group = version.Group
				}
				collection := collectionPath(kind, version)
				create, ok := creates[collection]
				if !ok {
					t.Errorf("%s has no recorded create", collection)
					continue
				}
				c := subresourceCase{kind: kind, version: version, sub: sub}
				t.Run(c.name()+"."+group+"."+version.Name, func(t *testing.T) { c.run(t, s, create) })
			}
		}
	}
}

func subresourceServer(t *testing.T) testServer {
	t.Helper()
	if *otherServer != "" {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig.InsecureSkipVerify = true
		return testServer{*otherServer, "application/json", &http.Client{Transport: withToken{transport}}}
	}
	conf := config.InMemory()
	conf.Controllers.Names = []string{"-*"} // the garbage collector would delete objects whose owners do not exist
	conf.API.FeatureGates = []string{"CBORServingAndStorage=true"}
	return startServer(t, conf).accepting("application/json")
}

type withToken struct{ http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+*otherToken)
	return w.RoundTripper.RoundTrip(r)
}

// run creates the object and writes its subresource.
func (c subresourceCase) run(t *testing.T, s testServer, create recordedCreate) {
	c.create(t, s, create)
	t.Cleanup(func() { c.remove(t, s) })
	c.writeAll(t, s)
}

func (c subresourceCase) writeAll(t *testing.T, s testServer) {
	accepted := map[string]bool{}
	parts := c.parts(t)
	if !effort.Full() {
		parts = parts[:1]
	}
	for _, part := range parts {
		for _, way := range writes {
			if !slices.Contains(c.sub.Verbs, way.verb) || c.tree &&
				(way.name == "PUT as protobuf" || way.name == "strategic merge patch") {
				continue
			}
			if c.write(t, s, part, way) && part.name == "all" {
				accepted[way.name] = true
			}
		}
	}
	// A ReplicationController keeps no finalizers that its deletion does not know, and a resize refuses a pod with other
	// containers.
	refused := c.kind.Resource == "replicationcontrollers" || c.name() == "pods/resize"
	if !accepted["PUT as JSON"] && !accepted["merge patch"] && !refused {
		t.Errorf("no write that sets all fields was accepted: it was not shown that they are ignored")
	}
}

// create creates the object, and the objects that it needs.
func (c *subresourceCase) create(t *testing.T, s testServer, create recordedCreate) {
	t.Helper()
	// Both may exist.
	s.do(t, http.MethodPost, "/api/v1/namespaces", "application/json", []byte(`{"metadata":{"name":"`+someNamespace+`"}}`))
	s.do(
		t, http.MethodPost, "/api/v1/namespaces/"+someNamespace+"/serviceaccounts", "application/json",
		[]byte(`{"metadata":{"name":"default"}}`),
	)
	status, answer := s.do(t, http.MethodPost, create.Path, "application/json", create.Body)
	var obj struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(create.Body, &obj)
	if status != http.StatusCreated && status != http.StatusConflict {
		t.Fatalf("create: %d %s", status, answer)
	}
	c.path = create.Path + "/" + obj.Metadata.Name
}

func (c *subresourceCase) remove(t *testing.T, s testServer) {
	if c.kind.Resource != "namespaces" {
		s.do(
			t, http.MethodPatch, c.path, "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`),
		)
		s.do(t, http.MethodDelete, c.path+"?gracePeriodSeconds=0", "", nil)
	}
}

// A part is some of the fields that do not belong to the subresource, with values.
type part struct {
	name   string
	fields map[string]any
}

// parts returns one part with all fields, and one part for each field of the first two levels. Fields of metadata
// that no write may set are left out.
func (c subresourceCase) parts(t *testing.T) []part {
	t.Helper()
	all, _ := sample(reflect.TypeOf(c.version.New()).Elem(), nil).(map[string]any)
	delete(all, "apiVersion")
	delete(all, "kind")
	all["metadata"] = sampleMetadata()
	without(all, c.own())
	accepted := maps.Clone(all)
	accepted["metadata"] = maps.Clone(all["metadata"].(map[string]any))
	maps.DeleteFunc(
		accepted["metadata"].(map[string]any), func(name string, _ any) bool { return strings.HasPrefix(name, "deletion") },
	)
	parts := []part{{"all", accepted}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		members, ok := all[name].(map[string]any)
		if !ok {
			parts = append(parts, part{name, map[string]any{name: all[name]}})
			continue
		}
		for _, member := range slices.Sorted(maps.Keys(members)) {
			parts = append(parts, part{name + "." + member, map[string]any{name: map[string]any{member: members[member]}}})
		}
	}
	return parts
}

func sampleMetadata() map[string]any {
	return map[string]any{
		"labels": map[string]any{"x": "y"}, "annotations": map[string]any{"x": "y"}, "finalizers": []any{"example.com/x"},
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}},
		"generateName":    "x", "generation": int64(77), "selfLink": "/x", "deletionGracePeriodSeconds": int64(77),
		"creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z",
	}
}

// sample returns a value of a Go type in which every field is set.
func sample(of reflect.Type, within []reflect.Type) any {
	if value, ok := sampleOf(of); ok {
		return value
	}
	switch of.Kind() {
	case reflect.Pointer:
		return sample(of.Elem(), within)
	case reflect.Struct:
		if slices.Contains(within, of) {
			return map[string]any{}
		}
		within = append(slices.Clone(within), of)
		out := map[string]any{}
		for i := range of.NumField() {
			name, rest, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			switch {
			case name == "-" || !of.Field(i).IsExported():
			case name != "":
				out[name] = sample(of.Field(i).Type, within)
			case rest == "inline" || of.Field(i).Anonymous:
				inline, _ := sample(of.Field(i).Type, within).(map[string]any)
				maps.Copy(out, inline)
			}
		}
		return out
	case reflect.Slice:
		return []any{sample(of.Elem(), within)}
	case reflect.Map:
		return map[string]any{"x": sample(of.Elem(), within)}
	}
	return nil
}

// sampleOf returns the values of types that are not encoded by their structure.
func sampleOf(of reflect.Type) (any, bool) {
	switch of.String() {
	case "v1.Time":
		return "2001-01-01T00:00:00Z", true
	case "v1.MicroTime":
		return "2001-01-01T00:00:00.000000Z", true
	case "resource.Quantity":
		return "7", true
	case "intstr.IntOrString":
		return int64(7), true
	case "v1.Duration":
		return "7s", true
	case "runtime.RawExtension", "v1.FieldsV1", "v1.JSON":
		return map[string]any{"x": "y"}, true
	case "[]uint8":
		return "eHh4", true
	case "v1.JSONSchemaPropsOrBool", "v1.JSONSchemaPropsOrArray", "v1.JSONSchemaPropsOrStringArray":
		return map[string]any{}, true
	}
	switch of.Kind() {
	case reflect.String:
		return "x", true
	case reflect.Bool:
		return true, true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return int64(7), true
	case reflect.Float64:
		return 7.5, true
	case reflect.Interface:
		return "x", true
	}
	return nil, false
}

// without deletes fields from a document.
func without(doc map[string]any, paths []string) {
	for _, path := range paths {
		remove(doc, strings.Split(path, "."))
	}
}

func remove(value any, path []string) {
	members, _ := value.(map[string]any)
	if members == nil {
		return
	}
	if len(path) == 1 {
		delete(members, path[0])
		return
	}
	name, isList := strings.CutSuffix(path[0], "[]")
	if !isList {
		remove(members[name], path[1:])
		return
	}
	elements, _ := members[name].([]any)
	for _, element := range elements {
		remove(element, path[1:])
	}
}

// overlay returns over, and adds the fields that only live has. Elements of lists keep the names that they have in
// live.
func overlay(live, over any) any {
	switch over := over.(type) {
	case map[string]any:
		members, _ := live.(map[string]any)
		out := maps.Clone(members)
		if out == nil {
			out = map[string]any{}
		}
		for name, value := range over {
			out[name] = overlay(members[name], value)
		}
		return out
	case []any:
		elements, _ := live.([]any)
		out := slices.Clone(elements)
		for i, value := range over {
			if i == len(out) {
				out = append(out, value)
				continue
			}
			before, isMap := out[i].(map[string]any)
			out[i] = overlay(out[i], value)
			if after, ok := out[i].(map[string]any); ok && isMap && before["name"] != nil {
				after["name"] = before["name"]
			}
		}
		return out
	}
	return over
}

// A way is one kind of write.
type way struct {
	name, verb, method, contentType string
	// body returns a body that sets fields in live, the object that a GET of the subresource has returned.
	body func(c subresourceCase, live, fields map[string]any) ([]byte, error)
}

var writes = []way{
	{"PUT as JSON", "update", http.MethodPut, "application/json", putAs(json.Marshal)},
	{"PUT as YAML", "update", http.MethodPut, "application/yaml", putAs(yaml.Marshal)},
	{"PUT as CBOR", "update", http.MethodPut, "application/cbor", putAs(direct.Marshal)},
	{"PUT as protobuf", "update", http.MethodPut, "application/vnd.kubernetes.protobuf", putProtobuf},
	{"JSON patch", "patch", http.MethodPatch, "application/json-patch+json", jsonPatch},
	{"merge patch", "patch", http.MethodPatch, "application/merge-patch+json", mergePatch},
	{"strategic merge patch", "patch", http.MethodPatch, "application/strategic-merge-patch+json", mergePatch},
	{"apply as YAML", "patch", http.MethodPatch, "application/apply-patch+yaml", applyAs(yaml.Marshal)},
	{"apply as JSON", "patch", http.MethodPatch, "application/apply-patch+yaml", applyAs(json.Marshal)},
	{"apply as CBOR", "patch", http.MethodPatch, "application/apply-patch+cbor", applyAs(direct.Marshal)},
}

func putAs(encode func(any) ([]byte, error)) func(subresourceCase, map[string]any, map[string]any) ([]byte, error) {
	return func(_ subresourceCase, live, fields map[string]any) ([]byte, error) {
		return encode(overlay(live, fields))
	}
}

func putProtobuf(c subresourceCase, live, fields map[string]any) ([]byte, error) {
	var obj runtime.Object = c.version.New()
	if c.sub.Scale != nil {
		obj = &autoscalingv1.Scale{}
	}
	doc, err := json.Marshal(overlay(live, fields))
	if err == nil {
		err = json.Unmarshal(doc, obj)
	}
	if err != nil {
		return nil, err
	}
	head := wire.NewEnvelopeHead(live["apiVersion"].(string), live["kind"].(string))
	return scheme.EncodeEnvelope(head, obj)
}

func jsonPatch(_ subresourceCase, live, fields map[string]any) ([]byte, error) {
	merged := overlay(live, fields).(map[string]any)
	var ops []map[string]any
	for name, value := range fields {
		members, ok := value.(map[string]any)
		if !ok || live[name] == nil {
			ops = append(ops, map[string]any{"op": "add", "path": "/" + name, "value": merged[name]})
			continue
		}
		for member := range members {
			ops = append(
				ops, map[string]any{"op": "add", "path": "/" + name + "/" + member, "value": merged[name].(map[string]any)[member]},
			)
		}
	}
	return json.Marshal(ops)
}

// touched returns the part of live that the fields change, after the change.
func touched(live, fields map[string]any) map[string]any {
	merged := overlay(live, fields).(map[string]any)
	out := map[string]any{}
	for name, value := range fields {
		members, ok := value.(map[string]any)
		if !ok {
			out[name] = merged[name]
			continue
		}
		some := map[string]any{}
		for member := range members {
			some[member] = merged[name].(map[string]any)[member]
		}
		out[name] = some
	}
	return out
}

func mergePatch(_ subresourceCase, live, fields map[string]any) ([]byte, error) {
	return json.Marshal(touched(live, fields))
}

func applyAs(encode func(any) ([]byte, error)) func(subresourceCase, map[string]any, map[string]any) ([]byte, error) {
	return func(_ subresourceCase, live, fields map[string]any) ([]byte, error) {
		body := touched(live, fields)
		body["apiVersion"], body["kind"] = live["apiVersion"], live["kind"]
		metadata, _ := body["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = live["metadata"].(map[string]any)["name"]
		body["metadata"] = metadata
		return encode(body)
	}
}

// write sends one body, and says whether it was accepted.
func (c subresourceCase) write(t *testing.T, s testServer, p part, way way) bool {
	t.Helper()
	before := read(t, s, c.path)
	shown := c.path
	if slices.Contains(c.sub.Verbs, "get") {
		shown += "/" + c.sub.Name
	}
	body, err := way.body(c, read(t, s, shown), p.fields)
	if err != nil {
		t.Fatalf("%s, %s: %v", p.name, way.name, err)
	}
	query := "?fieldManager=m"
	if strings.HasPrefix(way.name, "apply") {
		query += "&force=true"
	}
	status, answer := s.do(t, way.method, c.path+"/"+c.sub.Name+query, way.contentType, body)
	// kube-apiserver answers 500 to an applied configuration that does not fit its schema, and to a strategic merge
	// patch of a map of lists.
	if status >= http.StatusInternalServerError && !strings.HasPrefix(way.name, "apply") &&
		way.name != "strategic merge patch" {
		t.Errorf("%s, %s: %d %.300s", p.name, way.name, status, answer)
	}
	changed := differences(c.outside(before), c.outside(read(t, s, c.path)))
	for _, name := range changed {
		if !slices.Contains(c.allowed(), name) {
			t.Errorf("%s, %s: changed %s", p.name, way.name, name)
		}
	}
	return status < http.StatusBadRequest
}

func read(t *testing.T, s testServer, path string) map[string]any {
	t.Helper()
	status, answer := s.do(t, http.MethodGet, path, "", nil)
	var doc map[string]any
	if err := scheme.UnmarshalTree(answer, &doc); err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d %s %v", path, status, answer, err)
	}
	return doc
}

// outside removes from a document the fields of the subresource and the fields that every write changes, and
// returns it.
func (c subresourceCase) outside(doc map[string]any) map[string]any {
	without(doc, c.own())
	without(doc, []string{"metadata.managedFields", "metadata.resourceVersion"})
	return doc
}

// differences names the fields of the first two levels in which two documents differ.
func differences(a, b map[string]any) (names []string) {
	for _, name := range union(a, b) {
		one, isMap := a[name].(map[string]any)
		two, alsoMap := b[name].(map[string]any)
		if !isMap && !alsoMap {
			if !reflect.DeepEqual(a[name], b[name]) {
				names = append(names, name)
			}
			continue
		}
		for _, member := range union(one, two) {
			if !reflect.DeepEqual(one[member], two[member]) {
				names = append(names, fmt.Sprintf("%s.%s", name, member))
			}
		}
	}
	return names
}

func union(a, b map[string]any) []string {
	names := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(names)
	return slices.Compact(names)
}

// customDefinition defines a kind that keeps every field, with both subresources.
const customDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
	"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget",
		"listKind":"WidgetList"},
	"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{
	"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.selector"}},
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
	"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
	"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// TestCustomSubresourceWrites is TestSubresourceWrites for a custom resource.
func TestCustomSubresourceWrites(t *testing.T) {
	s := subresourceServer(t)
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if status, answer := s.do(
		t, http.MethodPost, definitions, "application/json", []byte(customDefinition),
	); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	t.Cleanup(func() { s.do(t, http.MethodDelete, definitions+"/widgets.example.com", "", nil) })
	const collection = "/apis/example.com/v1/namespaces/default/widgets"
	waitServed(t, s, collection)
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"replicas":2,"a":"b"}}`
	if status, answer := s.do(
		t, http.MethodPost, collection, "application/json", []byte(body),
	); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	verbs := []string{"get", "update", "patch"}
	for _, sub := range []registry.Subresource{
		{Name: "status", Verbs: verbs}, {Name: "scale", Verbs: verbs, Scale: &registry.Scale{}},
	} {
		kind := &registry.Kind{Names: registry.Names{Group: "example.com", Resource: "widgets"}}
		version := &registry.Version{New: func() registry.Object { return &customWidget{} }}
		c := subresourceCase{kind: kind, version: version, sub: &sub, path: collection + "/w", tree: true}
		t.Run(sub.Name, func(t *testing.T) { c.writeAll(t, s) })
	}
}

// customWidget has fields for the generated values.
type customWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas int32          `json:"replicas"`
		A        string         `json:"a"`
		Template map[string]any `json:"template"`
	} `json:"spec"`
	Status struct {
		Replicas int32  `json:"replicas"`
		Selector string `json:"selector"`
	} `json:"status"`
	Data map[string]string `json:"data"`
}

func (w *customWidget) DeepCopyObject() runtime.Object { out := *w; return &out }

// waitServed waits until a custom resource can be listed.
func waitServed(t *testing.T, s testServer, collection string) {
	t.Helper()
	const atMost = 20 * time.Second
	for end := time.Now().Add(atMost); ; time.Sleep(20 * time.Millisecond) {
		status, answer := s.do(t, http.MethodGet, collection, "", nil)
		if status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not served after %v: %d %s", collection, atMost, status, answer)
		}
	}
}

// TestPostedSubresources posts to the subresources that take objects of their own kind, with all fields set. Of
// the parent, only the fields in changes may change.
func TestPostedSubresources(t *testing.T) {
	s := startServer(t, config.InMemory()).accepting("application/json")
	const pods, accounts = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/serviceaccounts"
	s.do(t, http.MethodPost, accounts, "application/json", []byte(`{"metadata":{"name":"default"}}`))
	pod := `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	if status, answer := s.do(t, http.MethodPost, pods, "application/json", []byte(pod)); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	metadata := sampleMetadata()
	metadata["name"] = "p"
	for _, c := range []struct {
		path, parent string
		body         map[string]any
		changes      []string
	}{
		{
			accounts + "/default/token", accounts + "/default",
			map[string]any{"spec": map[string]any{"audiences": []any{"x"}, "expirationSeconds": 600}}, nil,
		},
		// kube-apiserver gives a pod the annotations and labels of its Binding.
		{pods + "/p/binding", pods + "/p", map[string]any{
			"metadata": metadata, "target": map[string]any{"kind": "Node", "name": "n"},
		},
			[]string{"metadata.annotations", "metadata.labels", "spec.nodeName", "status.conditions", "metadata.generation"}},
	} {
		before := read(t, s, c.parent)
		body, _ := json.Marshal(c.body)
		if status, answer := s.do(t, http.MethodPost, c.path, "application/json", body); status != http.StatusCreated {
			t.Errorf("%s: %d %s", c.path, status, answer)
		}
		for _, name := range differences(before, read(t, s, c.parent)) {
			if name != "metadata.resourceVersion" && name != "metadata.managedFields" && !slices.Contains(c.changes, name) {
				t.Errorf("%s: changed %s", c.path, name)
			}
		}
	}
	// An Eviction begins a deletion, which is all that it does.
	before := read(t, s, pods+"/p")
	body, _ := json.Marshal(map[string]any{"metadata": metadata})
	if status, answer := s.do(
		t, http.MethodPost, pods+"/p/eviction", "application/json", body,
	); status != http.StatusCreated {
		t.Fatalf("eviction: %d %s", status, answer)
	}
	allowed := []string{
		"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.resourceVersion",
		"metadata.generation", "status.conditions",
	}
	for _, name := range differences(before, read(t, s, pods+"/p")) {
		if !slices.Contains(allowed, name) {
			t.Errorf("eviction: changed %s", name)
		}
	}
}

// TestDeepYAML reads a deeply nested custom resource as YAML and as indented JSON. The size of the answer must not
// grow with the square of the depth.
func TestDeepYAML(t *testing.T) {
	s := startServer(t, config.InMemory()).accepting("application/json")
	const definitions, collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"/apis/example.com/v1/namespaces/default/widgets"
	s.do(t, http.MethodPost, definitions, "application/json", []byte(customDefinition))
	waitServed(t, s, collection)
	const depth, chains = 900, 200
	chain := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"list":[` + strings.TrimSuffix(
		strings.Repeat(chain+",", chains), ",",
	) + `]}}`
	if status, answer := s.do(
		t, http.MethodPost, collection, "application/json", []byte(body),
	); status != http.StatusCreated {
		t.Fatalf("%d %.200s", status, answer)
	}
	for _, path := range []string{collection + "/w", collection} {
		for accept, query := range map[string]string{"application/yaml": "", "application/json": "?pretty=true"} {
			status, answer := s.accepting(accept).do(t, http.MethodGet, path+query, "", nil)
			if status != http.StatusOK || len(answer) > 3*len(body) {
				t.Errorf("%s as %s: %d, %d bytes of %d", path, accept, status, len(answer), len(body))
			}
			var doc map[string]any
			if err := yaml.Unmarshal(answer, &doc); err != nil || doc["kind"] == nil {
				t.Errorf("%s as %s: %v", path, accept, err)
			}
		}
	}
}
