package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cborserial "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// fuzzNamespace is the namespace of the objects of TestBodiesAsKubeAPIServer.
const fuzzNamespace = "fuzz"

// TestBodiesAsKubeAPIServer sends wrong bodies of many kinds, in JSON, YAML, protobuf and CBOR, as creations, updates,
// patches of all types and deletions, to kube-apiserver and Keelson. It fails if Keelson answers 5xx, cuts the
// connection or panics and kube-apiserver does not, or if Keelson accepts an object that kube-apiserver refuses,
// except for the kinds that Keelson does not validate yet. It lists every other request with different status codes.
// At the end, every collection must still be listed in each encoding.
func TestBodiesAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	seed := fuzzSeed(t)
	const gate = "--feature-gates=CBORServingAndStorage=true"
	f := &bodyFuzz{
		reference: kubeAPIServer(t, dir, startEtcd(t, dir), gate, "--allow-privileged"), keelson: keelsonOn(t, dir, gate),
		tally: map[string]int{}, failures: map[string]int{},
	}
	for _, s := range []*apiServer{f.reference, f.keelson} {
		s.namespace(t, fuzzNamespace)
		// Pods need this service account; usually kube-controller-manager creates it.
		account := []byte(`{"metadata":{"name":"default"}}`)
		_, _ = s.must(t, http.MethodPost, "/api/v1/namespaces/"+fuzzNamespace+"/serviceaccounts", jsonType, jsonType, account)
	}
	seeds := f.seeds(t)
	const workers = 8
	pairs := fuzzPairs(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := w; i < pairs; i += workers {
				// Each seed is used by one worker, so that the requests about it have one order.
				f.one(t.Context(), rng, seeds[(rng.IntN(len(seeds)/workers))*workers+w])
			}
		})
	}
	wg.Wait()
	t.Logf("%d pairs; kube-apiserver answered %v; it failed with %v", pairs, f.tally, f.failures)
	f.found.without(t, knownBodies())
	f.reduce(t)
	f.found.report(t)
	f.listAll(t, seeds)
	if log, err := os.ReadFile(f.keelson.log); err != nil || strings.Contains(string(log), "panic") {
		t.Errorf("a panic is in the log of Keelson, or it cannot be read: %v", err)
	}
}

// knownBodies are differences that are intended, or known gaps.
func knownBodies() []known {
	return []known{
		{
			func(d *difference) bool { return d.unvalidated() && slices.Contains(unvalidated(), d.resource) },
			"Keelson does not validate the kind yet",
		},
		{func(d *difference) bool {
			return d.got.code == http.StatusBadRequest && strings.Contains(d.got.message, "invalid UTF-8")
		}, "Keelson refuses texts that are no UTF-8"},
		{func(d *difference) bool {
			failed := d.want.code == 0 || d.want.code >= http.StatusInternalServerError
			return failed && d.got.code >= http.StatusBadRequest && d.got.code < http.StatusInternalServerError
		}, "Keelson refuses what kube-apiserver fails with"},
	}
}

// unvalidated are the resources whose objects Keelson does not validate yet, or not in all points that kube-apiserver
// validates. A resource is removed when its validation is complete. For all other resources the test fails if Keelson
// accepts an object that is invalid for kube-apiserver.
func unvalidated() []string {
	return []string{
		"events", "resourcequotas",

		"events.events.k8s.io",
		"horizontalpodautoscalers.autoscaling",

		"flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"validatingwebhookconfigurations.admissionregistration.k8s.io",
		"mutatingadmissionpolicies.admissionregistration.k8s.io",
		"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io",
		"validatingadmissionpolicybindings.admissionregistration.k8s.io",
		"deviceclasses.resource.k8s.io", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io",
		"resourceslices.resource.k8s.io",
	}
}

// unvalidated reports whether kube-apiserver found the object invalid and Keelson did not: Keelson accepted it, or
// refused it only because an object with that name exists.
func (d *difference) unvalidated() bool {
	return d.want.code == http.StatusUnprocessableEntity && (d.got.code < http.StatusMultipleChoices && d.got.code != 0 ||
		d.got.code == http.StatusConflict && d.got.reason == string(metav1.StatusReasonAlreadyExists))
}

// resourceOf returns the resource and group of an API path, without subresources.
func resourceOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group, parts = "."+parts[1], parts[1:]
	}
	if parts = parts[2:]; parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts[0] + group
}

type bodyFuzz struct {
	reference, keelson *apiServer
	found              differences

	mu    sync.Mutex // guards the fields below
	tally map[string]int
	// failures are the requests that kube-apiserver answered 5xx.
	failures map[string]int
	shrink   map[string]*fuzzRequest // one request of each group that has a tree
}

// fuzzObject is an object from which requests are made.
type fuzzObject struct {
	collection, path string
	body             map[string]any
	exists           bool // on both servers
	never            bool // only used in creations, which are dry runs or fail
}

// seeds creates objects of all kinds on both servers, and records the differences.
func (f *bodyFuzz) seeds(t *testing.T) []*fuzzObject {
	t.Helper()
	var out []*fuzzObject
	shapes := map[string]int{}
	for _, d := range readDump(t) {
		if d.Object == nil || hasPrefix(d.Path, "/api/v1/namespaces/") && strings.Count(d.Path, "/") == 4 {
			continue
		}
		const each = 3
		collection := d.collection()
		if shapes[collection]++; shapes[collection] > each {
			continue
		}
		o := &fuzzObject{}
		if path, name, body := d.anew(fuzzNamespace); path != "" {
			o.collection, o.path = path, path+"/"+name
			if err := json.Unmarshal(body, &o.body); err != nil {
				t.Fatal(err)
			}
		} else {
			o.collection, o.path, o.body = collection, d.Path, clone(d.Object).(map[string]any)
			if metadata, ok := o.body["metadata"].(map[string]any); ok {
				for _, k := range []string{
					"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink", "deletionTimestamp",
				} {
					delete(metadata, k)
				}
			}
		}
		delete(o.body, "status")
		// These would affect all other requests.
		o.never = hasPrefix(collection, "/apis/admissionregistration.k8s.io/", "/apis/flowcontrol.apiserver.k8s.io/",
			"/apis/apiregistration.k8s.io/",
			"/api/v1/limitranges", "/api/v1/resourcequotas", "/apis/networking.k8s.io/v1/servicecidrs",
			"/apis/scheduling.k8s.io/") ||
			// These are created by the servers themselves.
			strings.HasPrefix(collection, "/apis/rbac.authorization.k8s.io/v1/cluster") && !strings.Contains(d.Path, "ct-")
		out = append(out, o)
	}
	for collection, body := range reviews() {
		o := &fuzzObject{collection: collection, never: true}
		if err := json.Unmarshal([]byte(body), &o.body); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	each(t, out, func(o *fuzzObject) error { f.restore(t.Context(), o); return nil })
	exist := 0
	for _, o := range out {
		if o.exists {
			exist++
		}
	}
	t.Logf("%d objects of %d resources, of which %d exist", len(out), len(shapes), exist)
	return out
}

// reviews are bodies of resources that are created but not stored.
func reviews() map[string]string {
	ns := "/api/v1/namespaces/" + fuzzNamespace
	return map[string]string{
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": `{"apiVersion":"authorization.k8s.io/v1",` +
			`"kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods","namespace":"x",` +
			`"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}}}}`,
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": `{"apiVersion":"authorization.k8s.io/v1",` +
			`"kind":"SelfSubjectRulesReview","spec":{"namespace":"x"}}`,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews": `{"apiVersion":"authorization.k8s.io/v1",` +
			`"kind":"SubjectAccessReview","spec":{"user":"a","groups":["b"],"extra":{"c":["d"]},` +
			`"nonResourceAttributes":{"path":"/x","verb":"get"}}}`,
		"/apis/authentication.k8s.io/v1/tokenreviews": `{"apiVersion":"authentication.k8s.io/v1",` +
			`"kind":"TokenReview","spec":{"token":"x","audiences":["a"]}}`,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": `{"apiVersion":"authentication.k8s.io/v1",` +
			`"kind":"SelfSubjectReview"}`,
		ns + "/serviceaccounts/default/token": `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest",` +
			`"spec":{"audiences":["a"],"expirationSeconds":3600}}`,
		ns + "/pods/x/eviction": `{"apiVersion":"policy/v1","kind":"Eviction",` +
			`"metadata":{"name":"x","namespace":"fuzz"},"deleteOptions":{"gracePeriodSeconds":1}}`,
		ns + "/pods/x/binding": `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"x"},` +
			`"target":{"kind":"Node","name":"n"}}`,
	}
}

// restore creates an object again on both servers.
func (f *bodyFuzz) restore(ctx context.Context, o *fuzzObject) {
	if o.never {
		return
	}
	var codes [2]int
	for i, s := range []*apiServer{f.reference, f.keelson} {
		if o.exists || i == 0 {
			_, _, _ = s.call(
				ctx, http.MethodDelete, o.path+"?gracePeriodSeconds=0&propagationPolicy=Background", jsonType, "", nil,
			)
			// Finalizers would delay the deletion.
			_, _, _ = s.call(ctx, http.MethodPatch, o.path, jsonType, mergeType, []byte(`{"metadata":{"finalizers":null}}`))
		}
		codes[i], _, _ = s.call(ctx, http.MethodPost, o.collection, jsonType, jsonType, marshal(o.body))
	}
	there := func(code int) bool { return code == http.StatusCreated || code == http.StatusConflict }
	o.exists = there(codes[0]) && there(codes[1])
}

// fuzzRequest is a request to both servers.
type fuzzRequest struct {
	method, path, contentType, accept string
	body                              []byte
	tree                              any    // the decoded body; nil if the encoded body was changed
	versioned                         bool   // body contains revisionHole in the place of the resourceVersion
	object                            string // the path of the object with that resourceVersion
	op, how                           string
	dry                               bool
}

// revisionHole is replaced by the resourceVersion of the object on each server. It has as many digits as a
// resourceVersion.
const revisionHole = "9876543210"

// one makes a request about an object, sends it to both servers and compares the responses.
func (f *bodyFuzz) one(ctx context.Context, rng *rand.Rand, o *fuzzObject) {
	r := f.request(rng, o)
	want, got := f.send(ctx, f.reference, r), f.send(ctx, f.keelson, r)
	if (want.code == http.StatusNotFound) != (got.code == http.StatusNotFound) {
		// If one server refused to create it again, it is created on both servers or on neither.
		f.restore(ctx, o)
		want, got = f.send(ctx, f.reference, r), f.send(ctx, f.keelson, r)
	}
	f.mu.Lock()
	f.tally[strconv.Itoa(want.code)]++
	if want.code >= http.StatusInternalServerError {
		f.failures[shape(want.message)]++
	}
	f.mu.Unlock()
	if want.code != got.code || want.reason != got.reason {
		d := r.difference(want, got)
		f.found.add(d)
		if r.tree != nil {
			f.mu.Lock()
			if f.shrink == nil {
				f.shrink = map[string]*fuzzRequest{}
			}
			if old := f.shrink[d.group]; old == nil || len(r.body) < len(old.body) {
				f.shrink[d.group] = r
			}
			f.mu.Unlock()
		}
	}
	// A changed body may no longer contain dryRun.
	if r.dry && r.op != "delete" || want.code >= http.StatusMultipleChoices && got.code >= http.StatusMultipleChoices {
		return
	}
	if r.op == "create" {
		for _, s := range []*apiServer{f.reference, f.keelson} {
			_, _, _ = s.call(ctx, http.MethodDelete, o.path+newSuffix+"?gracePeriodSeconds=0", jsonType, "", nil)
		}
	}
	f.restore(ctx, o)
}

// newSuffix is the end of the names of objects that do not exist yet.
const newSuffix = "-new"

// request makes a random request about an object.
func (f *bodyFuzz) request(rng *rand.Rand, o *fuzzObject) *fuzzRequest {
	r := &fuzzRequest{
		accept: oneOf(
			rng, jsonType, jsonType, jsonType, jsonType, protoType+", "+jsonType, "application/yaml", "application/cbor",
		),
	}
	r.dry = rng.IntN(3) > 0 || o.never || !strings.Contains(o.collection, "/namespaces/"+fuzzNamespace+"/")
	query := []string{}
	if r.dry {
		query = append(query, "dryRun=All")
	}
	if v := oneOf(rng, "", "Strict", "Strict", "Warn", "Ignore", "x"); v != "" && (v != "x" || rng.IntN(10) == 0) {
		query = append(query, "fieldValidation="+v)
	}
	kind := rng.IntN(10)
	switch {
	case !o.exists || kind < 3:
		r.op, r.method, r.path = "create", http.MethodPost, o.collection
		body := clone(o.body).(map[string]any)
		if metadata, ok := body["metadata"].(map[string]any); ok && !o.never && rng.IntN(10) > 0 {
			metadata["name"] = fmt.Sprint(metadata["name"]) + newSuffix
		}
		f.encode(rng, r, body)
	case kind == 3 || kind == 4:
		r.op, r.method, r.path = "update", http.MethodPut, o.path
		body := clone(o.body).(map[string]any)
		if metadata, ok := body["metadata"].(map[string]any); ok && rng.IntN(6) > 0 {
			metadata["resourceVersion"], r.versioned, r.object = revisionHole, true, o.path
		}
		f.subresource(rng, r)
		f.encode(rng, r, body)
	case kind == 9:
		r.op, r.method, r.path = "delete", http.MethodDelete, o.path
		options := map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": int64(0),
			"propagationPolicy": oneOf(rng, "Background", "Foreground", "Orphan"), "preconditions": map[string]any{"uid": "x"},
		}
		if rng.IntN(4) == 0 {
			r.op, r.path, r.dry = "deletecollection", o.collection, true
			query = append(query, "dryRun=All")
		}
		if rng.IntN(2) == 0 {
			delete(options, "preconditions")
		}
		if r.dry {
			options["dryRun"] = []any{"All"} // the parameter in the query is ignored if there is a body
		}
		f.encode(rng, r, options)
	default:
		f.patch(rng, r, o)
		query = append(query, "fieldManager=e2e")
		if rng.IntN(2) == 0 && strings.HasPrefix(r.op, "apply") {
			query = append(query, "force=true")
		}
	}
	if len(query) > 0 {
		r.path += "?" + strings.Join(query, "&")
	}
	return r
}

// subresource sometimes changes a request to one of a subresource.
func (f *bodyFuzz) subresource(rng *rand.Rand, r *fuzzRequest) {
	if rng.IntN(4) == 0 {
		s := oneOf(rng, "status", "status", "scale")
		r.path, r.op = r.path+"/"+s, r.op+" "+s
	}
}

// encode changes a tree and encodes it, or encodes it and changes the bytes.
func (f *bodyFuzz) encode(rng *rand.Rand, r *fuzzRequest, tree map[string]any) {
	early := rng.IntN(5) < 3
	if early {
		for range 1 + rng.IntN(2) {
			r.how += mutateTree(rng, tree) + "; "
		}
	}
	switch rng.IntN(8) {
	case 0, 1:
		r.contentType, r.body = "application/yaml", toYAML(tree)
		if !early {
			r.body, r.how = mutateText(rng, r.body, true)
		}
	case 2, 3:
		if b, err := toProtobuf(tree); err == nil {
			r.contentType, r.body = protoType, b
			if !early {
				r.body, r.how = mutateBytes(rng, r.body)
			}
			break
		}
		fallthrough // the tree does not fit its Go type
	case 4, 5:
		r.contentType, r.body = jsonType, marshal(tree)
		if !early {
			r.body, r.how = mutateText(rng, r.body, false)
		}
	default:
		r.contentType, r.body = "application/cbor", toCBOR(tree)
		if !early {
			r.body, r.how = mutateBytes(rng, r.body)
		}
	}
	if early {
		r.tree = tree
	} else {
		r.versioned = r.versioned && holeIsText(r)
	}
	if rng.IntN(60) == 0 {
		r.contentType, r.tree = oneOf(
			rng, "", "text/plain", "application/json;stream=watch", "application/json; charset=utf-8", "application/JSON",
			"application/vnd.kubernetes.protobuf;type=x", "application/yaml, application/json", "x", jsonType, protoType,
			"application/cbor-seq",
		), nil
		r.how += "content type " + r.contentType
	}
}

// holeIsText reports whether the hole of a binary body still follows the byte that makes it a text of its length.
// Otherwise the digits, which are not the same for both servers, would have different meanings.
func holeIsText(r *fuzzRequest) bool {
	switch r.contentType {
	case protoType:
		return strings.Contains(string(r.body), "\x0a"+revisionHole)
	case "application/cbor":
		return strings.Contains(string(r.body), "J"+revisionHole)
	}
	return true
}

// patch changes a request to a patch of one of the types.
func (f *bodyFuzz) patch(rng *rand.Rand, r *fuzzRequest, o *fuzzObject) {
	r.method, r.path = http.MethodPatch, o.path
	var tree any
	body := part(rng, clone(o.body).(map[string]any))
	switch rng.IntN(5) {
	case 0:
		r.op, r.contentType = "JSON patch", jsonPatchType
		tree = jsonPatch(rng, o.body)
	case 1:
		r.op, r.contentType = "merge patch", mergeType
		r.how = mutateTree(rng, body)
		tree = body
	case 2:
		r.op, r.contentType = "strategic patch", strategicType
		r.how = mutateTree(rng, body)
		if rng.IntN(2) == 0 {
			addDirectives(rng, body)
		}
		tree = body
	default:
		r.op, r.contentType = "apply", oneOf(rng, applyType, applyType, "application/apply-patch+cbor")
		for _, k := range []string{"apiVersion", "kind", "metadata"} {
			body[k] = clone(o.body[k])
		}
		if metadata, ok := body["metadata"].(map[string]any); ok && rng.IntN(10) > 0 {
			delete(metadata, "managedFields")
		}
		r.how = mutateTree(rng, body)
		tree = body
	}
	f.subresource(rng, r)
	r.tree = tree
	switch r.contentType {
	case applyType:
		r.body = toYAML(tree)
	case "application/apply-patch+cbor":
		r.body = toCBOR(tree)
	default:
		r.body = marshal(tree)
	}
	if rng.IntN(5) == 0 {
		r.tree = nil
		if strings.HasSuffix(r.contentType, "cbor") {
			r.body, r.how = mutateBytes(rng, r.body)
		} else {
			r.body, r.how = mutateText(rng, r.body, r.contentType == applyType)
		}
	}
}

// toProtobuf encodes a tree as protobuf of its Go type, or returns an error if it does not fit the type.
func toProtobuf(tree map[string]any) ([]byte, error) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(marshal(tree), nil, nil)
	if err != nil {
		return nil, err
	}
	b, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	if err == nil && strings.Contains(string(marshal(tree)), revisionHole) && !strings.Contains(string(b), revisionHole) {
		err = fmt.Errorf("the resourceVersion is lost")
	}
	return b, err
}

// send sends a request to one of the servers.
func (f *bodyFuzz) send(ctx context.Context, s *apiServer, r *fuzzRequest) outcome {
	const patience = 60 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body := r.body
	if r.versioned {
		_, answer, err := s.call(ctx, http.MethodGet, r.object, jsonType, "", nil)
		if err != nil {
			return outcome{message: err.Error()}
		}
		var object struct {
			Metadata struct{ ResourceVersion string }
		}
		if json.Unmarshal(answer, &object) == nil {
			body = []byte(
				strings.ReplaceAll(
					string(body), revisionHole, fmt.Sprintf("%0*s", len(revisionHole), object.Metadata.ResourceVersion),
				),
			)
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.url+r.path, strings.NewReader(string(body)))
	if err != nil {
		return outcome{message: err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("User-Agent", "e2e")
	req.Header.Set("Accept", r.accept)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return outcome{message: err.Error()}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return outcome{message: err.Error()}
	}
	o := outcome{code: resp.StatusCode}
	if o.code >= http.StatusMultipleChoices {
		o.reason, o.message = refusalOf(resp.Header.Get("Content-Type"), answer)
	}
	return o
}

// refusalOf returns reason and message of a Status in any encoding.
func refusalOf(contentType string, answer []byte) (reason, message string) {
	var status struct{ Reason, Message string }
	var err error
	switch {
	case strings.HasPrefix(contentType, protoType):
		var object metav1.Status
		_, _, err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(answer, nil, &object)
		status.Reason, status.Message = string(object.Reason), object.Message
	case strings.HasPrefix(contentType, "application/yaml"):
		err = yaml.Unmarshal(answer, &status)
	case strings.HasPrefix(contentType, "application/cbor"):
		var object metav1.Status
		err = cborserial.Unmarshal(answer, &object)
		status.Reason, status.Message = string(object.Reason), object.Message
	default:
		err = json.Unmarshal(answer, &status)
	}
	if err != nil {
		return "", string(answer)
	}
	return status.Reason, status.Message
}

var (
	quotedText = regexp.MustCompile(`"(\\.|[^"\\])*"|'[^']*'`)
	numbers    = regexp.MustCompile(`[0-9]+`)
	fieldPaths = regexp.MustCompile(`[a-zA-Z]+(\.[a-zA-Z\[\]Q#]+)+`)
)

// shape returns a message without the parts that depend on the object.
func shape(message string) string {
	s := quotedText.ReplaceAllString(message, "Q")
	s = fieldPaths.ReplaceAllString(numbers.ReplaceAllString(s, "#"), "F")
	return s[:min(len(s), 90)]
}

func (r *fuzzRequest) difference(want, got outcome) difference {
	d := difference{want: want, got: got}
	d.group = fmt.Sprintf(
		"%s as %s: %d %s, Keelson %d %s", r.op, r.contentType, want.code, shape(want.message), got.code, shape(got.message),
	)
	d.request, d.resource = r.String(), resourceOf(r.path)
	refused := want.code >= http.StatusBadRequest && want.code < http.StatusInternalServerError
	switch {
	case d.unvalidated():
		d.wrong, d.group = "Keelson does not find invalid what kube-apiserver does", d.resource+": "+d.group
	case refused && want.code != http.StatusNotFound && want.code != http.StatusConflict && got.code != 0 &&
		got.code < http.StatusMultipleChoices:
		d.wrong = "Keelson accepts what kube-apiserver refuses"
	case got.code == 0 && want.code != 0:
		d.wrong = "Keelson cuts the connection"
	case got.code >= http.StatusInternalServerError && want.code < http.StatusInternalServerError:
		d.wrong = "Keelson fails"
	}
	return d
}

func (r *fuzzRequest) String() string {
	const most = 3000
	body := strconv.QuoteToGraphic(string(r.body))
	if len(body) > most {
		body = fmt.Sprintf("%s... (%d bytes)", body[:most], len(r.body))
	}
	return fmt.Sprintf(
		"%s %s\n  Content-Type: %s, Accept: %s, changed: %s\n  %s", r.method, r.path, r.contentType, r.accept, r.how, body,
	)
}

// reduce makes the example of each group smaller: it removes members of the tree as long as the responses stay in the
// group.
func (f *bodyFuzz) reduce(t *testing.T) {
	t.Helper()
	var groups []string
	for group, r := range f.shrink {
		if f.found.groups[group] != nil && r.dry {
			groups = append(groups, group)
		}
	}
	each(t, groups, func(group string) error {
		r := f.shrink[group]
		f.shrinkOne(t.Context(), group, r)
		f.found.mu.Lock()
		defer f.found.mu.Unlock()
		f.found.groups[group].request = r.String()
		return nil
	})
}

func (f *bodyFuzz) shrinkOne(ctx context.Context, group string, r *fuzzRequest) {
	const most = 60
	tries := 0
	for _, p := range places(r.tree) {
		if p.object == nil || tries >= most {
			continue
		}
		old, there := p.object[p.key]
		if !there {
			continue
		}
		delete(p.object, p.key)
		smaller := *r
		if smaller.encodeTree() == nil {
			tries++
			want, got := f.send(ctx, f.reference, &smaller), f.send(ctx, f.keelson, &smaller)
			if smaller.difference(want, got).group == group {
				*r = smaller
				continue
			}
		}
		p.object[p.key] = old
	}
}

// encodeTree encodes the tree of a request again.
func (r *fuzzRequest) encodeTree() (err error) {
	switch {
	case strings.Contains(r.contentType, "yaml"):
		r.body = toYAML(r.tree)
	case strings.Contains(r.contentType, "cbor"):
		r.body = toCBOR(r.tree)
	case strings.Contains(r.contentType, "protobuf"):
		r.body, err = toProtobuf(r.tree.(map[string]any))
	default:
		r.body = marshal(r.tree)
	}
	return err
}

// listAll lists every collection of Keelson in every encoding. No stored object may make that fail.
func (f *bodyFuzz) listAll(t *testing.T, seeds []*fuzzObject) {
	t.Helper()
	done := map[string]bool{}
	for _, o := range seeds {
		if o.never || done[o.collection] {
			continue
		}
		done[o.collection] = true
		for _, accept := range []string{jsonType, protoType + ", " + jsonType, "application/yaml", "application/cbor",
			"application/json;as=Table;g=meta.k8s.io;v=v1"} {
			want, _, _ := f.reference.call(t.Context(), http.MethodGet, o.collection, accept, "", nil)
			got, answer, err := f.keelson.call(t.Context(), http.MethodGet, o.collection, accept, "", nil)
			// kube-apiserver cannot show some of the objects that it has stored as YAML.
			if err != nil || got != want && want < http.StatusInternalServerError || got >= http.StatusInternalServerError {
				t.Errorf("GET %s as %s: kube-apiserver %d, Keelson %d %.300s %v", o.collection, accept, want, got, answer, err)
			}
		}
	}
}
