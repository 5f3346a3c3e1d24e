package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// flowProducer is the field manager of specs, flowConsumer the field manager of the status.
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
)

var (
	flowSchemas    = flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")
	priorityLevels = flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

// flowObjects are the default objects of flow control, one a line.
//
//go:embed flowcontrol.jsonl
var flowObjects []byte

// flowObject is a FlowSchema or a PriorityLevelConfiguration.
type flowObject struct {
	registry.Object
	gvr schema.GroupVersionResource
	// mandatory objects are always reset to their defaults. An operator can change other objects
	// after setting their annotation autoupdate-spec to false.
	mandatory bool
}

// defaultFlows has the default objects of flow control. Nothing changes them.
type defaultFlows struct{ levels, schemas []flowObject }

// readFlowObjects returns the default objects, which are parsed once in a process.
var readFlowObjects = sync.OnceValues(func() (d defaultFlows, err error) {
	for line := range bytes.Lines(flowObjects) {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(line, &kind); err != nil {
			return d, err
		}
		if kind.Kind == "FlowSchema" {
			obj := &flowcontrolv1.FlowSchema{}
			err = json.Unmarshal(line, obj)
			d.schemas = append(d.schemas, flowObject{obj, flowSchemas, isMandatory(obj.Name)})
		} else {
			obj := &flowcontrolv1.PriorityLevelConfiguration{}
			err = json.Unmarshal(line, obj)
			d.levels = append(d.levels, flowObject{obj, priorityLevels, isMandatory(obj.Name)})
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
})

func isMandatory(name string) bool {
	return name == flowcontrolv1.PriorityLevelConfigurationNameExempt ||
		name == flowcontrolv1.PriorityLevelConfigurationNameCatchAll
}

// ensureFlowControl creates the default priority levels and flow schemas, updates those that
// no operator has changed, deletes those that are no longer defaults, and sets the condition
// Dangling of all flow schemas.
func (k *Keeper) ensureFlowControl(ctx context.Context) error {
	flows, err := readFlowObjects()
	if err != nil {
		return err
	}
	for _, list := range [][]flowObject{flows.levels, flows.schemas} {
		if err := forEachConcurrently(list, func(f flowObject) error { return k.ensureFlow(ctx, f) }); err != nil {
			return err
		}
		if err := k.removeObsoleteFlows(ctx, list); err != nil {
			return err
		}
	}
	return k.UpdateDangling(ctx)
}

// forEachConcurrently calls f for all elements concurrently, so that the store can sync the
// writes together. It returns the first error.
func forEachConcurrently[T any](list []T, f func(T) error) error {
	errs := make([]error, len(list))
	var running sync.WaitGroup
	for i, e := range list {
		running.Go(func() { errs[i] = f(e) })
	}
	running.Wait()
	return cmp.Or(errs...)
}

func (k *Keeper) ensureFlow(ctx context.Context, f flowObject) error {
	name := f.GetName()
	current, err := k.Registry.Lookup(ctx, f.gvr.GroupResource(), "", name)
	if err != nil {
		return err
	}
	if current == nil {
		obj := f.DeepCopyObject().(registry.Object)
		obj.SetAnnotations(map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"})
		return k.create(ctx, f.gvr, obj, flowProducer)
	}
	if !f.update(current) {
		return nil
	}
	return k.update(ctx, f.gvr, "", name, flowProducer, func(obj registry.Object) error {
		f.update(obj)
		return nil
	})
}

// update sets the fields of an existing object to the default, and reports whether that
// changed it.
func (f *flowObject) update(obj registry.Object) bool {
	follows := f.mandatory || isAutoUpdated(obj)
	changed := follows && f.replaceSpec(obj)
	value, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	if err == nil && value == follows {
		return changed
	}
	annotations := map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: strconv.FormatBool(follows)}
	for key, value := range obj.GetAnnotations() {
		if key != flowcontrolv1.AutoUpdateAnnotationKey {
			annotations[key] = value
		}
	}
	obj.SetAnnotations(annotations)
	return true
}

// isAutoUpdated reports whether the object follows the defaults: according to its annotation
// or, without a valid annotation, if its spec was never changed.
func isAutoUpdated(obj registry.Object) bool {
	value, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	if err != nil {
		return obj.GetGeneration() == 1
	}
	return value
}

// replaceSpec sets the spec and reports whether that changed it.
func (f *flowObject) replaceSpec(obj registry.Object) bool {
	switch current := obj.(type) {
	case *flowcontrolv1.FlowSchema:
		wanted := f.Object.(*flowcontrolv1.FlowSchema).Spec
		if equality.Semantic.DeepEqual(wanted, current.Spec) {
			return false
		}
		current.Spec = *wanted.DeepCopy()
	case *flowcontrolv1.PriorityLevelConfiguration:
		wanted := f.Object.(*flowcontrolv1.PriorityLevelConfiguration).Spec.DeepCopy()
		if wanted.Exempt != nil && current.Spec.Exempt != nil {
			wanted.Exempt = current.Spec.Exempt // operators may set this
		}
		if equality.Semantic.DeepEqual(*wanted, current.Spec) {
			return false
		}
		current.Spec = *wanted
	}
	return true
}

// removeObsoleteFlows deletes objects that are no longer defaults, unless an operator has
// changed them.
func (k *Keeper) removeObsoleteFlows(ctx context.Context, wanted []flowObject) error {
	gvr := wanted[0].gvr
	resource := k.Registry.Resource(gvr.GroupResource())
	names := map[string]bool{}
	for _, f := range wanted {
		names[f.GetName()] = true
	}
	var old []string
	var failed error
	err := resource.Reader.All(ctx, "", func(o *cache.Object) bool {
		if names[o.Name] {
			return true
		}
		var obj registry.Object
		if obj, failed = resource.Decoder.Decode(ctx, o); failed != nil {
			return false
		}
		if value, notBool := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); notBool == nil &&
			value {
			old = append(old, o.Name)
		}
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return forEachConcurrently(old, func(name string) error { return k.delete(ctx, gvr, "", name) })
}

// UpdateDangling sets the condition Dangling of each flow schema: whether its priority level is
// missing. It may be called while Run is running.
func (k *Keeper) UpdateDangling(ctx context.Context) error {
	schemas := k.Registry.Resource(flowSchemas.GroupResource())
	levels, err := k.Registry.Resource(priorityLevels.GroupResource()).Reader.Current(ctx)
	if err != nil {
		return err
	}
	var conditions []*flowcontrolv1.FlowSchema
	var failed error
	err = schemas.Reader.All(ctx, "", func(o *cache.Object) bool {
		var obj registry.Object
		if obj, failed = schemas.Decoder.Decode(ctx, o); failed != nil {
			return false
		}
		schema, ok := obj.(*flowcontrolv1.FlowSchema)
		if !ok {
			return true
		}
		var found bool
		if _, found, failed = levels.Get(ctx, schema.Spec.PriorityLevelConfiguration.Name); failed != nil {
			return false
		}
		if c := danglingCondition(schema, found); c != nil {
			c.LastTransitionTime = metav1.NewTime(k.Now())
			status := &flowcontrolv1.FlowSchema{
				TypeMeta: metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "FlowSchema"}}
			status.Name = schema.Name
			status.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{*c}
			conditions = append(conditions, status)
		}
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return forEachConcurrently(conditions, func(c *flowcontrolv1.FlowSchema) error {
		document, err := json.Marshal(map[string]any{
			"apiVersion": c.APIVersion, "kind": c.Kind, "metadata": map[string]string{"name": c.Name}, "status": c.Status,
		})
		if err != nil {
			return err
		}
		return k.applyStatus(ctx, flowSchemas, c.Name, flowConsumer, document)
	})
}

// danglingCondition returns the condition that the flow schema should have, nil if it already
// has it.
func danglingCondition(s *flowcontrolv1.FlowSchema, found bool) *flowcontrolv1.FlowSchemaCondition {
	level := s.Spec.PriorityLevelConfiguration.Name
	wanted := flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists",
			level),
	}
	if !found {
		wanted.Status, wanted.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		wanted.Message = fmt.Sprintf(
			"This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	}
	for _, c := range s.Status.Conditions {
		if c.Type == wanted.Type && c.Status == wanted.Status && c.Reason == wanted.Reason && c.Message == wanted.Message {
			return nil
		}
	}
	return &wanted
}
