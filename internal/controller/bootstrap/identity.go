package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/cryptobyte"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	identityLabel = "apiserver.kubernetes.io/identity"
	component     = "kube-apiserver"

	// identitySeconds is the duration of a server's lease in seconds.
	identitySeconds = 3600
	// renewIdentity is the time between two renewals. It is long enough that an idle server
	// does little work.
	renewIdentity = 5 * time.Minute
	// collectIdentities is the time between two rounds of deleting expired leases.
	collectIdentities = time.Hour
)

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// identity is the state of the server's own lease.
type identity struct {
	mu                 sync.Mutex // guards what follows
	holder             string     // differs for each run of the server
	renewed, collected time.Time
	left               bool // leaveLease was called
}

// ServerName returns the name of a server's lease, which contains a hash of the host name.
func ServerName(hostname string) string {
	var b cryptobyte.Builder
	for _, part := range []string{hostname, component} {
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(part)) })
	}
	hash := sha256.Sum256(b.BytesOrPanic()) // a name is short enough not to fail
	const size = 16
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(hash[:size]))
}

// renewLease creates or renews the lease that identifies this server.
func (k *Keeper) renewLease(ctx context.Context) error {
	k.identity.mu.Lock()
	defer k.identity.mu.Unlock()
	if k.identity.left {
		return nil
	}
	now := k.Now()
	name := ServerName(k.Hostname)
	if k.identity.holder == "" {
		k.identity.holder = name + "_" + string(uuid.NewUUID())
	}
	current, found, err := stored[*coordinationv1.Lease](ctx, k, leases, metav1.NamespaceSystem, name)
	if err != nil {
		return err
	}
	fresh := found && current.Spec.HolderIdentity != nil && *current.Spec.HolderIdentity == k.identity.holder &&
		now.Sub(k.identity.renewed) < renewIdentity
	if !fresh {
		if err := k.renew(ctx, name, found, now); err != nil {
			return err
		}
		k.identity.renewed = now
	}
	if k.identity.collected.IsZero() {
		k.identity.collected = now // other servers may still be starting
	}
	if now.Sub(k.identity.collected) < collectIdentities {
		return nil
	}
	k.identity.collected = now
	return k.collectLeases(ctx, now)
}

func (k *Keeper) renew(ctx context.Context, name string, found bool, now time.Time) error {
	fill := func(l *coordinationv1.Lease) {
		seconds, renewed := int32(identitySeconds), metav1.NewMicroTime(now)
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &k.identity.holder, &seconds, &renewed
		metav1.SetMetaDataLabel(&l.ObjectMeta, identityLabel, component)
		metav1.SetMetaDataLabel(&l.ObjectMeta, corev1.LabelHostname, k.Hostname)
		if k.PeerAddress != "" {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, corev1.AnnotationPeerAdvertiseAddress, k.PeerAddress)
		}
	}
	if found {
		err := k.update(ctx, leases, metav1.NamespaceSystem, name, manager, func(obj registry.Object) error {
			fill(obj.(*coordinationv1.Lease))
			return nil
		})
		if !kerrors.IsNotFound(err) {
			return err
		}
		// A server of the same name has just left.
	}
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name = metav1.NamespaceSystem, name
	fill(l)
	return k.create(ctx, leases, l, manager)
}

// leaveLease deletes the lease of this server permanently, so that peers forward no requests to it. If another
// process has taken over the lease, leaveLease keeps it: a server that replaces this one on the same machine has
// the same name.
func (k *Keeper) leaveLease(ctx context.Context) error {
	k.identity.mu.Lock()
	defer k.identity.mu.Unlock()
	if k.identity.left || !k.HasPeers {
		return nil
	}
	k.identity.left = true
	name := ServerName(k.Hostname)
	current, found, err := stored[*coordinationv1.Lease](ctx, k, leases, metav1.NamespaceSystem, name)
	if err != nil || !found || current.Spec.HolderIdentity == nil || *current.Spec.HolderIdentity != k.identity.holder {
		return err
	}
	_, err = k.Client.Delete(ctx, client.DeleteRequest{
		Ref:     client.Ref{Resource: leases, Namespace: metav1.NamespaceSystem, Name: name},
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &current.ResourceVersion}},
	})
	if kerrors.IsNotFound(err) || kerrors.IsConflict(err) {
		return nil
	}
	return err
}

// collectLeases deletes the expired leases of servers.
func (k *Keeper) collectLeases(ctx context.Context, now time.Time) error {
	resource := k.Registry.Resource(leases.GroupResource())
	var gone []string
	var failed error
	err := resource.Reader.All(ctx, metav1.NamespaceSystem, func(o *cache.Object) bool {
		var obj registry.Object
		if obj, failed = resource.Decoder.Decode(ctx, o); failed != nil {
			return false
		}
		if l, ok := obj.(*coordinationv1.Lease); ok && l.Labels[identityLabel] == component && expired(l, now) {
			gone = append(gone, l.Name)
		}
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return forEachConcurrently(gone, func(name string) error {
		return k.delete(ctx, leases, metav1.NamespaceSystem, name)
	})
}

func expired(l *coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	return s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second).Before(now)
}
