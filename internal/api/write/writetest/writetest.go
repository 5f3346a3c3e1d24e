// Package writetest writes objects in tests that have a registry and no server: through all steps, and
// with the admission that a test brings.
package writetest

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Manager is the field manager of a Writer.
const Manager = "test"

// Options are the options of one write.
type Options struct {
	DryRun bool
	// Admit checks the write; nil admits it.
	Admit registry.Admit
	// CreateMissing and CheckUID are those of write.Request.
	CreateMissing, CheckUID bool
}

// Writer writes objects in the version that is stored.
type Writer struct {
	pipeline *write.Pipeline
	served   sync.Map // *registry.Resource -> *registry.Served
}

// New returns a Writer for the resources of a registry.
func New(g *registry.Registry) *Writer { return &Writer{pipeline: write.New(g, nil, nil, nil)} }

func (w *Writer) target(r *registry.Resource) *registry.Served {
	t, _ := w.served.LoadOrStore(r, registry.NewServed(r, r.Kind.Version(r.Kind.Storage.Version)))
	return t.(*registry.Served)
}

func (w *Writer) do(ctx context.Context, r write.Request, o Options) (registry.Result, error) {
	p := *w.pipeline
	if o.Admit != nil {
		p.Admission = admission.NewChain(nil, admission.Plugin{Validate: func(ctx context.Context, a *admission.Attributes) error {
			return o.Admit(ctx, a.Object, a.Old)
		}})
	}
	r.Options.DryRun, r.Options.FieldManager = o.DryRun, Manager
	result, err := p.Do(ctx, r)
	return result.Result, err
}

// Create stores a new object.
func (w *Writer) Create(
	ctx context.Context, r *registry.Resource, namespace string, obj registry.Object, o Options,
) (registry.Result, error) {
	t := w.target(r)
	return w.do(ctx, write.Request{
		Verb: write.Create, Target: t, Namespace: namespace,
		Make: func(context.Context, *write.Current) (registry.Object, error) { return obj, nil },
	}, o)
}

// Update changes the current object by change and stores it.
func (w *Writer) Update(
	ctx context.Context, r *registry.Resource, sub *registry.Subresource, namespace, name string, o Options,
	change func(*write.Current) (registry.Object, error),
) (registry.Result, error) {
	return w.do(ctx, write.Request{
		Verb: write.Update, Target: w.target(r), Subresource: sub, Namespace: namespace, Name: name,
		CreateMissing: o.CreateMissing, CheckUID: o.CheckUID,
		Make: func(_ context.Context, c *write.Current) (registry.Object, error) { return change(c) },
	}, o)
}

// Amend changes an object as the Act of a Post does.
func (w *Writer) Amend(
	ctx context.Context, r *registry.Resource, namespace, name string, dryRun bool, change func(registry.Object) error,
) (registry.Object, error) {
	t := w.target(r)
	result, err := w.do(ctx, write.Request{
		Verb: write.Amend, Target: t, Namespace: namespace, Name: name,
		Make: func(ctx context.Context, c *write.Current) (registry.Object, error) {
			obj := c.Copy()
			return obj, change(obj)
		},
	}, Options{DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	return t.Resource.Decoder.Decode(ctx, result.Object)
}

// Delete deletes an object, or begins its deletion.
func (w *Writer) Delete(
	ctx context.Context, r *registry.Resource, namespace, name string, options *metav1.DeleteOptions, admit registry.Admit,
) (registry.Result, error) {
	o := Options{DryRun: len(options.DryRun) > 0, Admit: admit}
	return w.do(ctx, write.Deletion(w.target(r), namespace, name, options), o)
}
