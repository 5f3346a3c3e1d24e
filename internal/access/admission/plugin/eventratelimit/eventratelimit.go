// Package eventratelimit limits the rate of written events, so that they cannot fill the store (EventRateLimit). Like
// kube-apiserver it does not limit events that are written through events.k8s.io.
package eventratelimit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/lru"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

// event is the kind of the events that are limited.
var event = corev1.SchemeGroupVersion.WithKind("Event").GroupKind()

// Plugin returns the plug-in, for a configuration of DecodeConfig.
func Plugin(c Config, now func() time.Time) admission.Plugin {
	p := plugin{now: now}
	for _, l := range c.Limits {
		p.limits = append(p.limits, newLimiter(l))
	}
	return admission.Plugin{Name: "EventRateLimit", Validate: p.validate}
}

type plugin struct {
	limits []*limiter
	now    func() time.Time
}

// validate counts an event at all limits, even if one of them refuses it. Dry runs write nothing and are not
// counted.
func (p *plugin) validate(_ context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Create && a.Operation != admission.Update || a.Options.DryRun ||
		a.Requested.Kind.GroupKind() != event {
		return nil
	}
	var errs []error
	for _, l := range p.limits {
		if err := l.count(a, p.now()); err != nil {
			errs = append(errs, err)
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return kerrors.NewTooManyRequestsError(err.Error())
	}
	return nil
}

// limiter has the buckets of one limit.
type limiter struct {
	limit Limit
	mu    sync.Mutex // guards buckets
	// buckets maps each bucketKey to its *rate.Limiter.
	buckets *lru.Cache
}

func newLimiter(l Limit) *limiter {
	if l.Type == Server {
		l.CacheSize = 1
	}
	return &limiter{limit: l, buckets: lru.New(int(cmp.Or(l.CacheSize, defaultCacheSize)))}
}

// count takes a token out of the bucket of an event. It returns an error if the bucket is empty.
func (l *limiter) count(a *admission.Attributes, now time.Time) error {
	key := l.limit.key(a)
	if !l.bucket(key).AllowN(now, 1) {
		return fmt.Errorf("limit reached on type %v for key %v", l.limit.Type, strings.Join(key, ""))
	}
	return nil
}

// bucket returns the bucket of a key, which is full if it is new.
func (l *limiter) bucket(key []string) *rate.Limiter {
	hash := hashOf(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.buckets.Get(hash); ok {
		return known.(*rate.Limiter)
	}
	made := rate.NewLimiter(rate.Limit(l.limit.QPS), int(l.limit.Burst))
	l.buckets.Add(hash, made)
	return made
}

// bucketKey is the hash of a key. Keys are not kept themselves, because a client chooses how long they are.
type bucketKey [sha256.Size]byte

func hashOf(key []string) (out bucketKey) {
	h := sha256.New()
	for _, part := range key {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(out[:0])
	return out
}

// key returns the fields that all events of one bucket share.
func (l *Limit) key(a *admission.Attributes) []string {
	switch l.Type {
	case Namespace:
		return []string{a.Namespace}
	case User:
		if a.User != nil {
			return []string{a.User.Name}
		}
	case SourceAndObject:
		if e, ok := a.Object.(*corev1.Event); ok {
			about := &e.InvolvedObject
			return []string{
				e.Source.Component, e.Source.Host, about.Kind, about.Namespace, about.Name, string(about.UID), about.APIVersion,
			}
		}
	}
	return nil
}
