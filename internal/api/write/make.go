package write

import (
	"context"

	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// A Make function returns the new object of a write, in the version of the request: see Request.Make.
type Make = func(ctx context.Context, c *Current) (registry.Object, error)

// Object returns a Make whose result is obj itself, with the defaults of its version. It can be used for one
// attempt only, as in a Create.
func Object(t *registry.Served, obj registry.Object) Make {
	return func(context.Context, *Current) (registry.Object, error) {
		if t.Version.Default != nil {
			t.Version.Default(obj)
		}
		return obj, nil
	}
}

// Changed returns a Make that applies change to a copy of the current object. change may be called again with a
// newer object.
func Changed(change func(registry.Object) error) Make {
	return func(ctx context.Context, c *Current) (registry.Object, error) {
		obj, err := c.CopyRequested(ctx)
		if err != nil {
			return nil, err
		}
		return obj, change(obj)
	}
}

// CheckConfiguration refuses a configuration of server-side apply whose values cost too much to read.
func CheckConfiguration(t *registry.Served, c patch.Configuration) error {
	if t.Kind.Unstructured() {
		return nil
	}
	// The quantities of a configuration are read without a Decoder.
	return scheme.CheckQuantities(t.Version.New(), c.Object)
}

// Applied returns a Make that applies the configuration to the current object by server-side apply (KEP-555), and
// records that the field manager owns the fields of the configuration.
func (p *Pipeline) Applied(
	t *registry.Served, sub *registry.Subresource, configuration patch.Configuration, o Options,
) Make {
	return func(ctx context.Context, c *Current) (registry.Object, error) {
		m, err := p.managers.of(t, sub)
		if err != nil {
			return nil, err
		}
		live, err := c.Requested(ctx)
		if err != nil {
			return nil, err
		}
		return m.Apply(ctx, live, configuration.Object, o.FieldManager, o.Force != nil && *o.Force, p.Now())
	}
}
