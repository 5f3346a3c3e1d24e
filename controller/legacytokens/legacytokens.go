// Package legacytokens keeps track of service account tokens that secrets keep: since
// when uses are tracked, in a config map, and when a token was used last, in a label
// of its secret. kube-controller-manager cleans up what nobody uses (KEP-2799).
package legacytokens

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/registry"
)

const (
	configMapName = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey      = "since"
	lastUsedLabel = "kubernetes.io/legacy-token-last-used"

	dateForm = "2006-01-02"
	// manager is the field manager of what the server makes.
	manager = "kube-apiserver"
	// lookEvery is how often it is made sure that the config map is there.
	lookEvery = time.Hour
	// writeTime bounds the write of a label.
	writeTime = 10 * time.Second
)

var errReplaced = errors.New("the secret was replaced by another one")

// Objects are the objects of a server. registry.Registry is one.
type Objects interface {
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
	Update(ctx context.Context, r schema.GroupResource, namespace, name string, dryRun bool, change func(registry.Object) error) (registry.Object, error)
}

// Creator creates an object of a resource as a client named manager would.
type Creator interface {
	CreateAs(ctx context.Context, resource, version, group string, obj registry.Object, manager string) error
}

// Tracker is a serviceaccount.Tracker.
type Tracker struct {
	Objects Objects
	Log     *slog.Logger
	Now     func() time.Time

	mu      sync.Mutex // guards writing
	writing map[types.UID]bool
}

// Run keeps the config map, which creator creates where it is missing, until ctx ends.
func (t *Tracker) Run(ctx context.Context, creator Creator) {
	for {
		if err := t.ensureSince(ctx, creator); err != nil && ctx.Err() == nil {
			t.Log.Warn("cannot note since when legacy tokens are tracked", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

func (t *Tracker) today() string { return t.Now().UTC().Format(dateForm) }

// ensureSince creates the config map, or corrects its date.
func (t *Tracker) ensureSince(ctx context.Context, creator Creator) error {
	obj, err := t.Objects.Lookup(ctx, corev1.Resource("configmaps"), "kube-system", configMapName)
	if err != nil {
		return err
	}
	existing, ok := obj.(*corev1.ConfigMap)
	if !ok {
		c := &corev1.ConfigMap{Data: map[string]string{sinceKey: t.today()}}
		c.Namespace, c.Name = "kube-system", configMapName
		err := creator.CreateAs(ctx, "configmaps", "v1", "", c, manager)
		if kerrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	if _, err := time.Parse(dateForm, existing.Data[sinceKey]); err == nil {
		return nil
	}
	_, err = t.Objects.Update(ctx, corev1.Resource("configmaps"), "kube-system", configMapName, false, func(obj registry.Object) error {
		c := obj.(*corev1.ConfigMap)
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[sinceKey] = t.today()
		return nil
	})
	return err
}

// Used notes the day in the secret's label, if it is another than there. The request
// does not wait for it.
func (t *Tracker) Used(ctx context.Context, secret *corev1.Secret) {
	today := t.today()
	tomorrow := t.Now().UTC().AddDate(0, 0, 1).Format(dateForm) // of a clock that is ahead
	if last := secret.Labels[lastUsedLabel]; last == today || last == tomorrow {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing[secret.UID] {
		return
	}
	if t.writing == nil {
		t.writing = map[types.UID]bool{}
	}
	t.writing[secret.UID] = true
	go t.label(context.WithoutCancel(ctx), secret.Namespace, secret.Name, secret.UID, today)
}

func (t *Tracker) label(ctx context.Context, namespace, name string, uid types.UID, today string) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err := t.Objects.Update(ctx, corev1.Resource("secrets"), namespace, name, false, func(obj registry.Object) error {
		if obj.GetUID() != uid {
			return kerrors.NewConflict(corev1.Resource("secrets"), name, errReplaced)
		}
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[lastUsedLabel] = today
		obj.SetLabels(labels)
		return nil
	})
	if err != nil {
		t.Log.Warn("cannot note the use of a legacy token", "namespace", namespace, "secret", name, "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.writing, uid)
}
