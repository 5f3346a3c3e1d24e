// Package webhook sends audit events to a server, as an EventList in a POST.
package webhook

import (
	"context"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// DefaultBackoff is the time before the second attempt.
const DefaultBackoff = 10 * time.Second

// Webhook is a sink.Backend.
type Webhook struct {
	client  *webhook.Client
	backoff webhook.Backoff
	report  audit.Report
}

// New returns a Webhook that sends events through client. backoff is the time before the second
// attempt to send a batch; it grows with each attempt.
func New(client *webhook.Client, backoff time.Duration, report audit.Report) *Webhook {
	w := &Webhook{client: client, backoff: webhook.DefaultBackoff(), report: report}
	w.backoff.First = backoff
	return w
}

// Write implements sink.Backend. It retries after every error, because after almost any error
// the server may accept events later.
func (w *Webhook) Write(ctx context.Context, events []*audit.Event) bool {
	body := encode(events)
	always := func(error) bool { return true }
	err := webhook.Retry(ctx, w.backoff, always, func(ctx context.Context) error {
		_, err := w.client.Post(ctx, webhook.Call{Body: body})
		return err
	})
	if err != nil {
		w.report("webhook", err, events)
		return false
	}
	return true
}

// encode returns an EventList.
func encode(events []*audit.Event) []byte {
	b := []byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)
	for i, e := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = audit.AppendItem(b, e)
	}
	return append(b, "]}\n"...)
}
