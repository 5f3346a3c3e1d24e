// Package legacytokens tracks the use of legacy service account tokens (KEP-2799): a ConfigMap has the date when
// tracking began, and a label of each Secret whose token was used has the date of the last use. With these,
// kube-controller-manager deletes unused tokens.
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

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	configMapName = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey      = "since"
	lastUsedLabel = "kubernetes.io/legacy-token-last-used"

	dateForm = "2006-01-02"
	// checkInterval is the time between two checks that the ConfigMap exists.
	checkInterval = time.Hour
	// writeTimeout limits the write of a label.
	writeTimeout = 10 * time.Second
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

var errReplaced = errors.New("the secret was replaced by another one")

// Objects reads the ConfigMap. registry.Registry implements it.
type Objects interface {
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
}

// Writer writes objects. client.Client implements it.
type Writer interface {
	Create(ctx context.Context, r client.CreateRequest) (registry.Object, error)
	Update(ctx context.Context, r client.UpdateRequest) (registry.Object, error)
}

// Tracker is a serviceaccount.Tracker. Run writes the labels for the uses that Used records.
type Tracker struct {
	objects Objects
	log     *slog.Logger
	now     func() time.Time

	uses chan *use // uses whose labels are not written yet

	mu      sync.Mutex // guards writing
	writing map[types.UID]bool
}

// use is the use of a Secret's token on a day.
type use struct {
	namespace, name string
	uid             types.UID
	day             string
}

// maxUses limits the number of uses that wait to be written. Further uses are dropped; a later use on the same day is
// recorded again.
const maxUses = 1024

// New returns a Tracker.
func New(objects Objects, log *slog.Logger, now func() time.Time) *Tracker {
	return &Tracker{objects: objects, log: log, now: now, uses: make(chan *use, maxUses), writing: map[types.UID]bool{}}
}

// Run maintains the ConfigMap and writes labels until ctx is done.
func (t *Tracker) Run(ctx context.Context, w Writer) {
	look := time.NewTicker(checkInterval)
	defer look.Stop()
	t.keepConfigMap(ctx, w)
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-t.uses:
			t.writeLabel(ctx, w, *u)
		case <-look.C:
			t.keepConfigMap(ctx, w)
		}
	}
}

func (t *Tracker) keepConfigMap(ctx context.Context, w Writer) {
	if err := t.ensureConfigMap(ctx, w); err != nil && ctx.Err() == nil {
		t.log.Warn("cannot write since when legacy tokens are tracked", "error", err)
	}
}

func (t *Tracker) today() string { return t.now().UTC().Format(dateForm) }

// ensureConfigMap creates the ConfigMap, or corrects its date.
func (t *Tracker) ensureConfigMap(ctx context.Context, w Writer) error {
	obj, err := t.objects.Lookup(ctx, corev1.Resource("configmaps"), "kube-system", configMapName)
	if err != nil {
		return err
	}
	existing, ok := obj.(*corev1.ConfigMap)
	if !ok {
		c := &corev1.ConfigMap{Data: map[string]string{sinceKey: t.today()}}
		c.Namespace, c.Name = "kube-system", configMapName
		_, err := w.Create(ctx, client.CreateRequest{Resource: configMaps, Object: c})
		if kerrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	if _, err := time.Parse(dateForm, existing.Data[sinceKey]); err == nil {
		return nil
	}
	ref := client.Ref{Resource: configMaps, Namespace: "kube-system", Name: configMapName}
	_, err = w.Update(ctx, client.UpdateRequest{Ref: ref, Change: func(obj registry.Object) error {
		c := obj.(*corev1.ConfigMap)
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[sinceKey] = t.today()
		return nil
	}})
	return err
}

// Used records the use of a token today, unless the Secret's label already has this date. It
// does not block.
func (t *Tracker) Used(_ context.Context, secret *corev1.Secret) {
	today := t.today()
	tomorrow := t.now().UTC().AddDate(0, 0, 1).Format(dateForm) // the clock of another server may be ahead
	if last := secret.Labels[lastUsedLabel]; last == today || last == tomorrow {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing[secret.UID] {
		return
	}
	select {
	case t.uses <- &use{secret.Namespace, secret.Name, secret.UID, today}:
		t.writing[secret.UID] = true
	default:
	}
}

func (t *Tracker) writeLabel(ctx context.Context, w Writer, u use) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	ref := client.Ref{Resource: secrets, Namespace: u.namespace, Name: u.name}
	_, err := w.Update(ctx, client.UpdateRequest{Ref: ref, Change: func(obj registry.Object) error {
		if obj.GetUID() != u.uid {
			return kerrors.NewConflict(secrets.GroupResource(), u.name, errReplaced)
		}
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[lastUsedLabel] = u.day
		obj.SetLabels(labels)
		return nil
	}})
	if err != nil {
		t.log.Warn("cannot record the use of a legacy token", "namespace", u.namespace, "secret", u.name, "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.writing, u.uid)
}
