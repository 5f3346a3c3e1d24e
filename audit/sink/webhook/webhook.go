// Package webhook sends audit events to a server, as an EventList in a POST.
package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/audit"
)

const (
	// DefaultBackoff is how long to wait before the second attempt.
	DefaultBackoff = 10 * time.Second

	requestTimeout = 30 * time.Second // of one attempt
	attempts       = 5
	backoffFactor  = 1.5
	backoffJitter  = 0.2
	maxErrorText   = 1024
)

// Webhook is a sink.Backend.
type Webhook struct {
	client  *http.Client
	url     string
	backoff time.Duration
	report  audit.Report
}

// New returns a Webhook that a kubeconfig file describes: where the server is, how
// to verify it, and with which credentials. backoff is how long to wait before the
// second attempt to send a batch; it grows with each.
func New(kubeconfig string, backoff time.Duration, report audit.Report) (*Webhook, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	config.Timeout = requestTimeout
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	// The events and credentials are for that server alone.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Webhook{client: client, url: url.String(), backoff: backoff, report: report}, nil
}

// Write implements sink.Backend. Whatever goes wrong is tried again: there is
// hardly an error after which the server could not take events later.
func (w *Webhook) Write(ctx context.Context, events []*audit.Event) bool {
	body := encode(events)
	wait := w.backoff
	for attempt := 1; ; attempt++ {
		err := w.post(ctx, body)
		if err == nil {
			return true
		}
		if attempt == attempts {
			w.report("webhook", err, events)
			return false
		}
		timer := time.NewTimer(wait + time.Duration(rand.Float64()*backoffJitter*float64(wait)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			w.report("webhook", err, events)
			return false
		}
		wait = time.Duration(float64(wait) * backoffFactor)
	}
}

func (w *Webhook) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, */*")
	answer, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorText))
	if answer.StatusCode >= http.StatusOK && answer.StatusCode < http.StatusMultipleChoices {
		return nil // what it says does not matter
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the server answered %s: %q", answer.Status, text)
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
