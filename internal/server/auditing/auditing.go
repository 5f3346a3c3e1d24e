// Package auditing connects the policy of the audit log with its sinks.
package auditing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	auditfilter "github.com/keelson-dev/keelson/internal/gateway/filter/audit"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/audit/policy"
	"github.com/keelson-dev/keelson/internal/machinery/audit/sink"
	auditlog "github.com/keelson-dev/keelson/internal/machinery/audit/sink/log"
	auditwebhook "github.com/keelson-dev/keelson/internal/machinery/audit/sink/webhook"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// Auditing audits the requests of a server. Nil audits nothing.
type Auditing struct {
	Options
	policy policy.Current
	sinks  audit.Union
	files  []io.Closer
	// maxObject is the size in bytes from which no sink accepts an object. It is negative if a sink accepts objects
	// of any size, and 0 before there are sinks.
	maxObject int64
	closing   sync.Once
}

// Options are the dependencies of Auditing.
type Options struct {
	Config *config.Audit
	// Budget limits the time that a request waits for a log or webhook in the blocking modes, FlushTime the time in
	// which Close writes buffered events.
	Budget, FlushTime time.Duration
	Files             *reload.Files
	Calls             webhook.Options
	Metrics           *audit.Metrics
	Log               *slog.Logger
}

// Open reads the policy and opens the sinks of events. It returns nil if the configuration has no policy or no
// sink.
func Open(o Options) (*Auditing, error) {
	c, files, log := o.Config, o.Files, o.Log
	if c.PolicyFile == "" {
		if c.Log.Path != "" || c.Webhook.ConfigFile != "" {
			log.Info("without --audit-policy-file nothing is audited")
		}
		return nil, nil
	}
	a := &Auditing{Options: o}
	_, err := files.Load(reload.Part{Flag: "--audit-policy-file", Path: c.PolicyFile, Apply: func(read filewatch.Read) error {
		p, err := policy.Load(c.PolicyFile, read, log)
		if err == nil {
			a.policy.Use(p)
		}
		return err
	}})
	if err != nil {
		return nil, err
	}
	if c.Log.Path != "" {
		out, err := a.openLog(&c.Log)
		if err != nil {
			return nil, err
		}
		batch := batchOptions(&c.Log.AuditSink)
		batch.Throttle = c.Log.Throttle
		a.add(auditlog.New(out, c.Log.Format, a.report), &c.Log.AuditSink, batch)
	}
	if c.Webhook.ConfigFile != "" {
		client, err := files.Webhook("--audit-webhook-config-file", c.Webhook.ConfigFile, o.Calls)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("initializing audit webhook: %w", err), a.Close())
		}
		batch := batchOptions(&c.Webhook.AuditSink)
		batch.Throttle, batch.Concurrent = !c.Webhook.NoThrottle, true
		a.add(auditwebhook.New(client, c.Webhook.InitialBackoff, a.report), &c.Webhook.AuditSink, batch)
	}
	if len(a.sinks) == 0 {
		return nil, nil
	}
	return a, nil
}

func (a *Auditing) openLog(c *config.AuditLog) (io.Writer, error) {
	if c.Path == "-" {
		return os.Stdout, nil
	}
	file, err := auditlog.OpenFile(auditlog.FileOptions{
		Path: c.Path, MaxSize: c.MaxSize, MaxAge: c.MaxAge, MaxBackups: c.MaxBackups, Compress: c.Compress,
		OnError: func(err error) { a.Log.Error("audit: old log files", "error", err) },
	})
	if err != nil {
		return nil, err
	}
	a.files = append(a.files, file)
	return file, nil
}

// batchOptions returns the options of c for batches. The caller sets Throttle and Concurrent.
func batchOptions(c *config.AuditSink) sink.BatchOptions {
	return sink.BatchOptions{
		BufferSize: c.BufferSize, MaxBatchSize: c.BatchSize, MaxBatchWait: c.BatchWait, QPS: c.QPS, Burst: c.Burst,
	}
}

// add adds a backend with the buffering and truncation of its configuration.
func (a *Auditing) add(b sink.Backend, c *config.AuditSink, batch sink.BatchOptions) {
	var s audit.Sink
	if c.Mode == sink.ModeBatch {
		s = sink.NewBatch(b, batch, a.report)
	} else {
		s = sink.NewBlocking(b, c.Mode == sink.ModeBlockingStrict, a.Budget, a.report)
	}
	switch {
	case !c.Truncate:
		a.maxObject = -1
	case a.maxObject >= 0:
		a.maxObject = max(a.maxObject, c.MaxEventSize)
	}
	if c.Truncate {
		s = &sink.Truncate{Next: s, MaxEventSize: c.MaxEventSize, MaxBatchSize: c.MaxBatchSize, Report: a.report}
	}
	a.sinks = append(a.sinks, s)
}

// report logs events that could not be written. It implements audit.Report. It logs only the identity of events,
// because their content may be secret.
func (a *Auditing) report(part string, err error, events []*audit.Event) {
	a.Metrics.Error(part, len(events))
	ids := make([]string, 0, len(events))
	for _, e := range events {
		ids = append(ids, string(e.AuditID))
	}
	a.Log.Error("audit events are lost or late", "plugin", part, "error", err, "events", len(events), "audit-IDs", ids)
}

// Filter returns the options of the audit filter, nil if nothing is audited.
func (a *Auditing) Filter(kinds []*registry.Kind) *auditfilter.Auditor {
	if a == nil {
		return nil
	}
	return &auditfilter.Auditor{
		Policy: &a.policy, Sink: a.sinks, NewObject: newObjects(kinds),
		Observe: func(l audit.Level) { a.Metrics.Level(l.String()) }, Count: a.Metrics.Event, Rejected: a.Metrics.Rejected,
		MaxObjectBytes: max(a.maxObject, 0),
	}
}

// newObjects returns a function that creates empty objects of the built-in kinds.
func newObjects(kinds []*registry.Kind) func(schema.GroupVersionKind) runtime.Object {
	makers := map[schema.GroupVersionKind]func() runtime.Object{}
	add := func(group, kind string, make func() runtime.Object) {
		makers[schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}] = make
	}
	add(autoscalingv1.GroupName, "Scale", func() runtime.Object { return &autoscalingv1.Scale{} })
	add("", "Status", func() runtime.Object { return &metav1.Status{} })
	add("", "APIVersions", func() runtime.Object { return &metav1.APIVersions{} })
	add("", "APIGroup", func() runtime.Object { return &metav1.APIGroup{} })
	add("", "APIGroupList", func() runtime.Object { return &metav1.APIGroupList{} })
	add("", "APIResourceList", func() runtime.Object { return &metav1.APIResourceList{} })
	add(metav1.GroupName, "PartialObjectMetadata", func() runtime.Object { return &metav1.PartialObjectMetadata{} })
	add(metav1.GroupName, "PartialObjectMetadataList", func() runtime.Object { return &metav1.PartialObjectMetadataList{} })
	for _, k := range kinds {
		for i := range k.Versions {
			v := &k.Versions[i]
			gvk := schema.GroupVersionKind{Group: cmp.Or(v.Group, k.Group), Version: v.Name, Kind: k.Name}
			makers[gvk] = func() runtime.Object { return v.New() }
		}
	}
	return func(gvk schema.GroupVersionKind) runtime.Object {
		if make := makers[gvk]; make != nil {
			return make()
		}
		return nil
	}
}

// Close writes the buffered events and closes the log. It may be called again, and with a nil Auditing.
func (a *Auditing) Close() (err error) {
	if a == nil {
		return nil
	}
	a.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), a.FlushTime)
		defer cancel()
		if err = a.sinks.Close(ctx); err != nil {
			return // a file that hangs may be in use
		}
		for _, f := range a.files {
			if err = f.Close(); err != nil {
				return
			}
		}
	})
	return err
}
