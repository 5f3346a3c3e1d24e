package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// writeFloor does only what no server can leave out of a write, with the fastest code there is here: it decodes the
// body once into the Go type, encodes the object once as protobuf and once as JSON (an object without a Go type only as
// JSON), commits it with a synced Pebble batch, and answers. There is no user, no admission, no validation, no
// managedFields to compute, no watch.
//
// What a server returned for such a write is posted first, as the prototype: the floor encodes and returns an object of
// that content, so that both handle the same bytes.
//
//	PUT  /prototype?type=T            the body is what the measured server returned
//	/create?type=T                    a create or an update: decode, encode, commit, answer
//	/patch?type=T                     read and decode the stored prototype, decode the body into it, encode, commit,
//	                                  answer
//	/post?type=T&body=B               decode a body of type B, such as a Binding; read and decode the stored
//	                                  prototype, encode it as protobuf, commit, answer a Status
type writeFloor struct {
	commit func(value []byte) error
	write  func(w http.ResponseWriter, b []byte)

	mu sync.Mutex
	// stored has the bytes of the prototype of each type, guarded by mu.
	stored map[string]*prototype
}

// prototype is an object as it is stored.
type prototype struct {
	object runtime.Object // nil if it has no Go type
	tree   map[string]any // the object otherwise
	bytes  []byte         // protobuf or JSON
}

// goTypes has the Go types of the measured objects and bodies. A type that is not here is decoded as a tree.
var goTypes = map[string]func() runtime.Object{
	"Pod":        func() runtime.Object { return &corev1.Pod{} },
	"ConfigMap":  func() runtime.Object { return &corev1.ConfigMap{} },
	"Event":      func() runtime.Object { return &corev1.Event{} },
	"Lease":      func() runtime.Object { return &coordinationv1.Lease{} },
	"Deployment": func() runtime.Object { return &appsv1.Deployment{} },
	"Binding":    func() runtime.Object { return &corev1.Binding{} },
	"Eviction":   func() runtime.Object { return &policyv1.Eviction{} },
}

func newWriteFloor(f *floorServer) *writeFloor {
	return &writeFloor{commit: f.commit, write: f.write, stored: map[string]*prototype{}}
}

func (f *writeFloor) handle(mux *http.ServeMux) {
	mux.HandleFunc("PUT /prototype", f.answer(f.setPrototype))
	mux.HandleFunc("/create", f.answer(f.create))
	mux.HandleFunc("/patch", f.answer(f.patch))
	mux.HandleFunc("/post", f.answer(f.post))
}

func (f *writeFloor) answer(do func(r *http.Request, body []byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, max(0, r.ContentLength))
		_, err := io.ReadFull(r.Body, body)
		var out []byte
		if err == nil {
			out, err = do(r, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		f.write(w, out)
	}
}

// decode decodes body as kind into a new object or tree.
func decode(kind string, body []byte) (runtime.Object, map[string]any, error) {
	make, typed := goTypes[kind]
	if !typed {
		var tree map[string]any
		return nil, tree, json.Unmarshal(body, &tree)
	}
	obj := make()
	if !structjson.Decode(body, obj) {
		return nil, nil, fmt.Errorf("%s: not decoded: %.100s", kind, body)
	}
	return obj, nil, nil
}

var anyHead = wire.NewEnvelopeHead("v1", "Any")

// encode returns what is stored and what is answered.
func encode(obj runtime.Object, tree map[string]any) (stored, answer []byte, err error) {
	if obj == nil {
		answer, err = json.Marshal(tree)
		return answer, answer, err
	}
	if stored, err = scheme.EncodeEnvelope(anyHead, obj); err != nil {
		return nil, nil, err
	}
	answer, err = scheme.Marshal(obj)
	return stored, answer, err
}

func (f *writeFloor) setPrototype(r *http.Request, body []byte) ([]byte, error) {
	kind := r.URL.Query().Get("type")
	obj, tree, err := decode(kind, body)
	if err != nil {
		return nil, err
	}
	p := &prototype{object: obj, tree: tree}
	if p.bytes, err = p.encoded(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored[kind] = p
	return nil, nil
}

// encoded returns the object as it is stored, without an envelope.
func (p *prototype) encoded() ([]byte, error) {
	if p.object == nil {
		return json.Marshal(p.tree)
	}
	return scheme.EncodeProto(p.object)
}

func (f *writeFloor) prototype(r *http.Request) (*prototype, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.stored[r.URL.Query().Get("type")]
	if p == nil {
		return nil, fmt.Errorf("no prototype of %s", r.URL)
	}
	return p, nil
}

// read decodes the stored bytes of a prototype.
func (f *writeFloor) read(r *http.Request) (runtime.Object, map[string]any, error) {
	p, err := f.prototype(r)
	if err != nil {
		return nil, nil, err
	}
	if p.object == nil {
		var tree map[string]any
		return nil, tree, json.Unmarshal(p.bytes, &tree)
	}
	obj := goTypes[r.URL.Query().Get("type")]()
	return obj, nil, scheme.DecodeProto(p.bytes, obj)
}

func (f *writeFloor) create(r *http.Request, body []byte) ([]byte, error) {
	if _, _, err := decode(r.URL.Query().Get("type"), body); err != nil {
		return nil, err
	}
	p, err := f.prototype(r)
	if err != nil {
		return nil, err
	}
	return f.store(p.object, p.tree)
}

func (f *writeFloor) store(obj runtime.Object, tree map[string]any) ([]byte, error) {
	stored, answer, err := encode(obj, tree)
	if err != nil {
		return nil, err
	}
	return answer, f.commit(stored)
}

func (f *writeFloor) patch(r *http.Request, body []byte) ([]byte, error) {
	obj, tree, err := f.read(r)
	if err != nil {
		return nil, err
	}
	// What is merged is not the point: lists are replaced, and what a patch does not name stays.
	if obj == nil {
		err = json.Unmarshal(body, &tree)
	} else if !structjson.Decode(body, obj) {
		err = fmt.Errorf("the patch is not decoded: %.100s", body)
	}
	if err != nil {
		return nil, err
	}
	return f.store(obj, tree)
}

func (f *writeFloor) post(r *http.Request, body []byte) ([]byte, error) {
	if _, _, err := decode(r.URL.Query().Get("body"), body); err != nil {
		return nil, err
	}
	obj, tree, err := f.read(r)
	if err != nil {
		return nil, err
	}
	if obj == nil {
		return nil, fmt.Errorf("%v has no Go type", tree["kind"])
	}
	stored, err := scheme.EncodeEnvelope(anyHead, obj)
	if err != nil {
		return nil, err
	}
	return []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}`), f.commit(stored)
}
